-- Locks a job for the end of its run and returns it; MJ001 unless it is running under this lease (D2). The row is reached by id
-- alone: with status in the condition the planner would walk the index of running rows and its dead entries (design 5.3). The lease,
-- which is in no index, stands there: a lease that is lost never comes back, so the late worker neither waits for a producer who is
-- changing its pending job nor deadlocks with one.
create or replace function mdm._lock_leased(p_job_id bigint, p_lease_no bigint)
returns mdm.aa_job
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_job mdm.aa_job;
begin
  select j.*
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id
    and j.lease_no = p_lease_no
  for no key update;
  if not found or v_job.status <> 'running' then
    perform mdm._raise_lease_lost(p_job_id, p_lease_no);
  end if;
  return v_job;
end
$$;

comment on function mdm._lock_leased(bigint, bigint) is 'The job, locked, or MJ001 when it is not running under this lease (D2). Private.';
