-- Enqueue with an idempotency key (S10.1, D6): finds the newest job of the key, and keeps it, changes it or makes the next
-- generation. Every round looks with a new snapshot: whoever loses a race against another producer, a claim or a purge looks again.
create or replace function mdm._enqueue_keyed(
  p_job_kind text,
  p_payload jsonb,
  p_tenant_id uuid,
  p_idempotency_key text,
  p_update boolean,
  p_priority int,
  p_available_at timestamptz,
  p_max_attempts int,
  p_context jsonb,
  p_actor_principal_id uuid,
  out o_job_id bigint,
  out o_outcome text)
returns record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_newest record;
begin
  loop
    v_newest := mdm._newest_of_key(p_tenant_id, p_job_kind, p_idempotency_key);
    o_job_id := v_newest.o_id;
    if o_job_id is not null and not p_update then
      o_outcome := 'existing';
      return;
    elsif v_newest.o_status = 'pending' then
      if mdm._update_pending(o_job_id, p_payload, p_priority, p_available_at, p_max_attempts, p_context, p_actor_principal_id) then
        o_outcome := 'updated';
        return;
      end if;
    else
      with job as (
        insert into mdm.aa_job (
          tenant_id, job_kind, priority, available_at, payload, context, max_attempts, idempotency_key, key_no)
        select p_tenant_id, k.job_kind, coalesce(p_priority, k.priority), coalesce(p_available_at, clock_timestamp()),
          coalesce(p_payload, '{}'), p_context, coalesce(p_max_attempts, k.max_attempts), p_idempotency_key,
          coalesce(v_newest.o_key_no + 1, 0)
        from mdm.aa_job_kind k
        where k.job_kind = p_job_kind
        on conflict (tenant_id, job_kind, idempotency_key, key_no) where idempotency_key is not null do nothing
        returning id),
      audit as (
        insert into mdm.aa_audit_log (
          occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
        select clock_timestamp(), 'job_enqueued', mdm._actor(p_actor_principal_id), session_user, p_tenant_id, 'job', j.id::text,
          jsonb_build_object('job_kind', p_job_kind, 'idempotency_key', p_idempotency_key)
        from job j
        join mdm.aa_job_kind k on k.job_kind = p_job_kind
        where k.audit_level = 'full')
      select j.id, 'inserted'
      into o_job_id, o_outcome
      from job j;
      if found then
        return;
      end if;
    end if;
  end loop;
end
$$;

comment on function mdm._enqueue_keyed(text, jsonb, uuid, text, boolean, int, timestamptz, int, jsonb, uuid) is
  'Enqueues with a key; outcome inserted, existing or updated (S10.1, D6). Arguments are checked by the caller. Private.';
