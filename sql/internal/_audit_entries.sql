-- The newest audit rows about the ends of jobs and the settings of kinds: those with ids from p_entry on, by their key. NULL = none: not
-- every platform's audit has such ids, and then nothing here is planned.
create or replace function mdm._audit_entries(p_entry bigint)
returns table (object_type text, object_id text, action mdm.audit_action, occurred_at timestamptz)
language plpgsql
stable
parallel safe
security invoker
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
set jit = off
set max_parallel_workers_per_gather = 0
as $$
begin
  if p_entry is not null then
    return query
      select a.object_type, a.object_id, a.action, a.occurred_at
      from mdm.aa_audit_log a
      where a.id >= p_entry
        and (a.object_type = 'job_kind' or (a.object_type = 'job' and a.action in ('job_done', 'job_dlq', 'job_stop')));
  end if;
end
$$;

comment on function mdm._audit_entries(bigint) is 'Audit rows from an id on that tell of ends of jobs and of settings of kinds. Private.';
