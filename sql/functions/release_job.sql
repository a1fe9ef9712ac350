-- Gives a job back that was not run to an end (S7.4, D4): the attempt is given back too.
create or replace function mdm.release_job(
  p_job_id bigint,
  p_lease_no bigint,
  p_retry_after interval default null,
  p_reason text default null)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
  perform mdm._lock_leased(p_job_id, p_lease_no);
  perform mdm._release_locked(array[p_job_id], array[p_retry_after], p_reason);
end
$$;

comment on function mdm.release_job(bigint, bigint, interval, text) is
  'Gives a claimed job back: pending again, its attempt given back, releases counted (S7.4, D4). p_retry_after: not before now + this (clamped to 0 .. max_delay), NULL = it keeps its place. p_reason goes to last_error. MJ001 when the lease is gone.';
