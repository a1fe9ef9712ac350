-- What must always hold of the stored jobs. Run by tests, by operators, after incidents: it reads whole tables.
create or replace function mdm.check_job_invariants()
returns table (name text, violations bigint, sample text)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
as $$
  with violation as (
    select 'running_without_lease' as name, j.id
    from mdm.aa_job j
    where j.status = 'running'
      and (j.lease_no is null or j.claimed_by is null or j.claimed_at is null)
    union all
    select 'pending_but_claimed', j.id
    from mdm.aa_job j
    where j.status = 'pending'
      and (j.claimed_by is not null or j.claimed_at is not null or j.heartbeat_at is not null)
    union all
    select 'completed_at_wrong', j.id
    from mdm.aa_job j
    where (j.completed_at is not null) <> (j.status in ('done', 'dlq', 'failed'))
    union all
    -- a pending job has an attempt before it (S5.3)
    select 'pending_without_attempts_left', j.id
    from mdm.aa_job j
    where j.status = 'pending'
      and j.attempts >= j.max_attempts
      and j.recoveries = 0
    union all
    select 'more_attempts_than_allowed', j.id
    from mdm.aa_job j
    where j.attempts > j.max_attempts
      and j.recoveries = 0
    union all
    select 'unregistered_kind', j.id
    from mdm.aa_job j
    where not exists (select from mdm.aa_job_kind k where k.job_kind = j.job_kind)
    union all
    -- one audit row per act that D15 audits, in the transaction of the act (S11); whether a job that was done before its kind's settings
    -- changed had to leave one is not known any more
    select 'audit_row_missing', j.id
    from mdm.aa_job j
    join mdm.aa_job_kind k on k.job_kind = j.job_kind
    where (j.status in ('dlq', 'failed')
        or (j.status = 'done' and k.audit_level = 'full' and not exists (
          select
          from mdm.aa_audit_log c
          where c.object_type = 'job_kind'
            and c.object_id = j.job_kind
            and c.occurred_at >= j.completed_at)))
      and not exists (
        select
        from mdm.aa_audit_log a
        where a.object_type = 'job'
          and a.object_id = j.id::text
          and a.action = case j.status when 'dlq' then 'job_dlq' when 'done' then 'job_done' else 'job_stop' end::mdm.audit_action)
    union all
    select 'done_twice', a.object_id::bigint
    from mdm.aa_audit_log a
    where a.object_type = 'job'
      and a.action = 'job_done'
    group by a.object_id
    having count(*) > 1)
  select n.name, count(v.id), string_agg(v.id::text, ', ' order by v.id) filter (where v.id <= n.tenth)
  from (
    select c.name, (
      select max(t.id)
      from (select v.id from violation v where v.name = c.name order by v.id limit 10) t) as tenth
    from unnest(array['running_without_lease', 'pending_but_claimed', 'completed_at_wrong', 'pending_without_attempts_left',
      'more_attempts_than_allowed', 'unregistered_kind', 'audit_row_missing', 'done_twice']) c (name)) n
  left join violation v on v.name = n.name
  group by n.name
  order by n.name;
$$;

comment on function mdm.check_job_invariants() is
  'Checks what must always hold of the stored jobs and their audit rows; a row per invariant with the number of violations and the ids of the first ten. Reads whole tables: not for every minute.';
