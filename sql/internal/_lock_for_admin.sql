-- Locks a job for an administrator's act; MJ002 when it is gone, MJ004 when its state does not allow the act.
create or replace function mdm._lock_for_admin(p_job_id bigint, p_states mdm.job_status[], p_act text, p_hint text)
returns mdm.aa_job
language plpgsql
volatile
parallel unsafe
security invoker
set enable_seqscan = off
set jit = off
as $$
declare
  v_job mdm.aa_job;
begin
  select j.*
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id
  for update;
  if not found then
    perform mdm._raise('MJ002', format('no job %s', coalesce(p_job_id::text, 'NULL')),
      'It never existed, was discarded, or was purged after its retention.', 'Look for it in the audit log by object_id.');
  end if;
  if v_job.status <> all (p_states) then
    perform mdm._raise('MJ004', format('job %s is %s and cannot be %s', p_job_id, v_job.status, p_act), null, p_hint);
  end if;
  return v_job;
end
$$;

comment on function mdm._lock_for_admin(bigint, mdm.job_status[], text, text) is
  'The job, locked for update; MJ002 when there is none, MJ004 unless it is in one of p_states. Private.';
