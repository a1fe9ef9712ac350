-- The fence of every transaction of a handler that commits more than once (D24). The key-share lock makes recovery skip the row
-- until this transaction ends, and lets heartbeats and its own finish pass.
create or replace function mdm.check_lease(p_job_id bigint, p_lease_no bigint)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_job record;
begin
  select j.status, j.lease_no
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id
  for key share;
  if not found or v_job.status <> 'running' or v_job.lease_no is distinct from p_lease_no then
    perform mdm._raise_lease_lost(p_job_id, p_lease_no);
  end if;
end
$$;

comment on function mdm.check_lease(bigint, bigint) is
  'Raises MJ001 when the job is not running under this lease, so that the caller''s transaction aborts (D2, D24). First statement of every transaction of a handler that commits more than once.';
