-- What must always hold of the stored jobs. Run by tests, by the cleanup (a slice at a time: watch_invariants), and by people.
create or replace function mdm.check_job_invariants(
  p_since timestamptz default null,
  p_from bigint default null,
  p_to bigint default null,
  p_entry bigint default null)
returns table (name text, violations bigint, sample text)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
as $$
  with violation as materialized (
    select r.name, r.job_id
    from mdm._row_violations(p_from, p_to) r
    union all
    select a.name, a.job_id
    from mdm._audit_violations(p_since, p_entry) a)
  select n.name, count(v.job_id), string_agg(v.job_id::text, ', ' order by v.job_id) filter (where v.job_id <= n.tenth)
  from (
    select c.name, (
      select max(t.job_id)
      from (select v.job_id from violation v where v.name = c.name order by v.job_id limit 10) t) as tenth
    from unnest(array['running_without_lease', 'pending_but_claimed', 'completed_at_wrong', 'pending_without_attempts_left',
      'more_attempts_than_allowed', 'unregistered_kind', 'audit_row_missing', 'done_twice']) c (name)) n
  left join violation v on v.name = n.name
  group by n.name
  order by n.name;
$$;

comment on function mdm.check_job_invariants(timestamptz, bigint, bigint, bigint) is
  'Checks what must always hold of the stored jobs and their audit rows; a row per invariant with the number of violations and the ids of the first ten. Without arguments it reads whole tables. p_since: the rules about the audit (audit_row_missing, done_twice) look only at jobs that ended after it, infinity = none; p_entry: and only at audit rows with ids from it on, which must have those of these jobs among them. p_from, p_to: the other rules look only at jobs with ids from .. to. The cleanup looks at a slice each time (watch_invariants).';
