-- A run that ended in an error: again later (S5.2, S6), or dead (S5.3, D10), or superseded by a newer job of its key (D6).
create or replace function mdm.fail_job(
  p_job_id bigint,
  p_lease_no bigint,
  p_error text,
  p_retryable boolean default true,
  p_retry_after interval default null,
  p_actor_principal_id uuid default null)
returns table (status mdm.job_status, available_at timestamptz)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_job mdm.aa_job := mdm._lock_leased(p_job_id, p_lease_no);
  v_now timestamptz := clock_timestamp();
  v_kind mdm.aa_job_kind;
  v_error text := mdm._cut_bytes(coalesce(p_error, 'no error text'), 8192);
begin
  if v_job.idempotency_key is not null
    and exists (select from mdm._retire_superseded(array[p_job_id], p_actor_principal_id))
  then
    null;
  elsif not coalesce(p_retryable, true) or v_job.attempts >= v_job.max_attempts then
    update mdm.aa_job j
    set status = 'dlq',
      completed_at = v_now,
      last_error = v_error
    where j.id = p_job_id;
    perform mdm._audit('job_dlq', p_actor_principal_id, v_job.tenant_id, 'job', p_job_id::text,
      jsonb_build_object('job_kind', v_job.job_kind, 'last_error', v_error, 'attempts', v_job.attempts));
  else
    select k.* into v_kind from mdm.aa_job_kind k where k.job_kind = v_job.job_kind;
    update mdm.aa_job j
    set status = 'pending',
      available_at = v_now + case
        when p_retry_after is not null then mdm._clamp_delay(p_retry_after, v_kind.max_delay)
        else mdm._backoff(v_job.attempts, v_kind.base_delay, v_kind.max_delay, v_kind.jitter, random())
      end,
      last_error = v_error,
      claimed_by = null,
      claimed_at = null,
      heartbeat_at = null
    where j.id = p_job_id;
  end if;

  return query
    select j.status, j.available_at
    from mdm.aa_job j
    where j.id = p_job_id;
end
$$;

comment on function mdm.fail_job(bigint, bigint, text, boolean, interval, uuid) is
  'Ends a run with an error and returns what became of the job: pending again after the kind''s backoff (S5.2, S6.1) or after p_retry_after (clamped to 0 .. max_delay, D8), dlq when p_retryable is false (D10) or attempts >= max_attempts (S5.3), done when a newer job of its key exists (D6). p_error is cut to 8,192 bytes (D9). MJ001 when the lease is gone.';
