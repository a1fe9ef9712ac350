-- The audit rows of a job, searched between its birth and its end; the view v_job_history calls it. The bounds are looked up first and
-- passed as parameters: in a join the planner takes a ninth of the audit for what lies between them and reads the whole of it.
create or replace function mdm.find_entries(p_job_id bigint)
returns table (occurred_at timestamptz, action mdm.audit_action, actor_principal_id uuid, session_role name, payload jsonb)
language plpgsql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
declare
  -- the clock is read for the row and for its audit one after the other, and may be set
  c_apart constant interval := interval '1 minute';
  -- cast once, not for each row
  v_object text := p_job_id::text;
  v_from timestamptz;
  v_to timestamptz;
begin
  select least(j.created_at, j.completed_at) - c_apart,
    case when j.completed_at is null then 'infinity' else greatest(j.created_at, j.completed_at) + c_apart end
  into v_from, v_to
  from mdm.aa_job j
  where j.id = p_job_id;

  return query
    select a.occurred_at, a.action, a.actor_principal_id, a.session_role, a.payload
    from mdm.aa_audit_log a
    where a.object_type = 'job'
      and a.object_id = v_object
      and a.occurred_at between v_from and v_to;
end
$$;

comment on function mdm.find_entries(bigint) is
  'Audit rows of a job that still exists, in no order; the view v_job_history calls it. Reads as much of the audit as was written while the job was not at its end, where an index leads to that time; a BRIN is enough.';
