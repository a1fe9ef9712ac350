-- Puts a locked dead or stopped job back to pending (S9.2), unless a newer job of its key exists (D6). The caller says what that means.
create or replace function mdm._replay_locked(p_job mdm.aa_job, p_reason text, p_actor_principal_id uuid)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
set enable_seqscan = off
set jit = off
as $$
begin
  update mdm.aa_job j
  set status = 'pending',
    attempts = 0,
    available_at = clock_timestamp(),
    lease_no = null,
    claimed_by = null,
    claimed_at = null,
    heartbeat_at = null,
    completed_at = null
  where j.id = p_job.id;
  -- its work starts anew
  perform mdm._forget_progress(array[p_job.id]);
  perform mdm._audit('job_replay', p_actor_principal_id, p_job.tenant_id, 'job', p_job.id::text,
    jsonb_build_object('job_kind', p_job.job_kind, 'status', p_job.status, 'last_error', p_job.last_error, 'reason', p_reason));
end
$$;

comment on function mdm._replay_locked(mdm.aa_job, text, uuid) is 'Puts a locked job back to pending with attempts 0; audit job_replay (S9.2). Private.';
