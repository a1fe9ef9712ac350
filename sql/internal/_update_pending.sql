-- Gives a pending job a new payload, priority and, before its first attempt, time (D6). NULL keeps what the row has. A row that turns
-- out to be claimed is neither written nor left locked: the lock waited for the claim's, and would now let the worker's finish wait for
-- the producer. Rolling back the subtransaction lets go of it. The row is reached by id alone: with status in the condition the planner
-- would walk the claim index (design 5.3).
create or replace function mdm._update_pending(
  p_job_id bigint,
  p_payload jsonb,
  p_priority int,
  p_available_at timestamptz,
  p_max_attempts int,
  p_context jsonb,
  p_actor_principal_id uuid)
returns boolean
language plpgsql
volatile
parallel unsafe
security invoker
set enable_seqscan = off
set jit = off
as $$
declare
  v_job record;
begin
  select j.status, j.tenant_id, j.job_kind, j.idempotency_key
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id
  for no key update;
  if not found or v_job.status <> 'pending' then
    raise exception using errcode = 'MJ000', message = 'not pending any more';
  end if;

  update mdm.aa_job j
  set payload = coalesce(p_payload, j.payload),
    priority = coalesce(p_priority, j.priority),
    available_at = case when j.attempts = 0 then coalesce(p_available_at, j.available_at) else j.available_at end,
    -- a pending job has an attempt before it, whatever the new limit
    max_attempts = greatest(p_max_attempts, least(j.attempts, 2147483646) + 1, case when p_max_attempts is null then j.max_attempts end),
    context = coalesce(p_context, j.context)
  where j.id = p_job_id;
  insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
  select clock_timestamp(), 'job_enqueued', mdm._actor(p_actor_principal_id), session_user, v_job.tenant_id, 'job', p_job_id::text,
    jsonb_build_object('job_kind', v_job.job_kind, 'idempotency_key', v_job.idempotency_key, 'updated', true)
  from mdm.aa_job_kind k
  where k.job_kind = v_job.job_kind
    and k.audit_level = 'full';
  return true;
exception
  when sqlstate 'MJ000' then
    return false;
end
$$;

comment on function mdm._update_pending(bigint, jsonb, int, timestamptz, int, jsonb, uuid) is
  'Changes a job that is still pending; false, with nothing written or locked, when it is not (D6). Private.';
