-- The rules about jobs and their audit rows (D15, S11), for jobs that ended after p_since (NULL = all, infinity = none) and audit rows
-- with ids from p_entry on (NULL = all). Ended jobs and audit rows are counted together: no join that could be planned for an empty table.
create or replace function mdm._audit_violations(p_since timestamptz, p_entry bigint)
returns table (name text, job_id bigint)
language plpgsql
stable
parallel safe
security invoker
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_since timestamptz := coalesce(p_since, timestamptz '-infinity');
begin
  if v_since = 'infinity' then
    return;
  end if;
  return query
    with entry as materialized (
      select a.object_type, a.object_id, a.action, a.occurred_at
      from mdm.aa_audit_log a
      where p_entry is null
        and (a.object_type = 'job_kind' or (a.object_type = 'job' and a.action in ('job_done', 'job_dlq', 'job_stop')))
      union all
      select e.object_type, e.object_id, e.action, e.occurred_at
      from mdm._audit_entries(p_entry) e),
    -- whether a job that was done before its kind's settings changed had to leave a row is not known any more; at the moment of the
    -- change it may have been ending
    changed as materialized (
      select c.object_id as job_kind, max(c.occurred_at) + interval '1 second' as at
      from entry c
      where c.object_type = 'job_kind'
      group by c.object_id)
    select case when t.entries = 0 then 'audit_row_missing' else 'done_twice' end, t.object_id::bigint
    from (
      select u.object_id, u.action, sum(u.jobs) as jobs, sum(u.entries) as entries, max(u.occurred_at) as occurred_at
      from (
        select d.id::text as object_id, d.action, 1 as jobs, 0 as entries, null::timestamptz as occurred_at
        from mdm.aa_job_kind k
        left join changed c on c.job_kind = k.job_kind
        -- offset 0: a probe for each kind, never one walk over the whole index
        cross join lateral (
          select j.id, 'job_done'::mdm.audit_action as action
          from mdm.aa_job j
          where j.status = 'done'
            and j.job_kind = k.job_kind
            and k.audit_level = 'full'
            and j.completed_at > greatest(v_since, c.at)
          union all
          select j.id, case j.status when 'dlq' then 'job_dlq' else 'job_stop' end::mdm.audit_action
          from mdm.aa_job j
          where j.status in ('dlq', 'failed')
            and j.job_kind = k.job_kind
            and j.completed_at > v_since
          offset 0) d
        union all
        select e.object_id, e.action, 0, 1, e.occurred_at
        from entry e
        where e.object_type = 'job') u
      group by u.object_id, u.action) t
    where (t.jobs = 1 and t.entries = 0)
      or (t.action = 'job_done' and t.entries > 1 and t.occurred_at > v_since);
end
$$;

comment on function mdm._audit_violations(timestamptz, bigint) is
  'Jobs that ended after a time (NULL = all, infinity = none) without their audit row, or that the audit rows from an id on (NULL = all) say were done twice. Private.';
