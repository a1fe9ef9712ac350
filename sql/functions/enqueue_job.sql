-- Enqueues one job in the caller's transaction (S2, S10.1). The hot path is two statements: one look-up, both inserts.
create or replace function mdm.enqueue_job(
  p_job_kind text,
  p_payload jsonb default '{}',
  p_tenant_id uuid default null,
  p_idempotency_key text default null,
  p_on_conflict text default 'ignore',
  p_priority int default null,
  p_available_at timestamptz default null,
  p_max_attempts int default null,
  p_context jsonb default null,
  p_actor_principal_id uuid default null)
returns bigint
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_kind record;
  v_outcome text := 'inserted';
  v_job_id bigint;
begin
  select k.priority, k.max_attempts, k.enabled, k.tenant_required, k.audit_level,
    p_tenant_id is null or exists (select from mdm.aa_tenant t where t.id = p_tenant_id) as tenant_known,
    coalesce(
      coalesce(p_tenant_id, '00000000-0000-0000-0000-000000000000'::uuid) = any ((
        select array_agg(pt.tenant_id)
        from mdm.aa_principal p
        join mdm.aa_principal_tenant pt on pt.principal_id = p.id
        where p.role_name = session_user)::uuid[]),
      true) as tenant_allowed,
    coalesce(
      p_actor_principal_id,
      (select p.id from mdm.aa_principal p where p.role_name = session_user limit 1),
      (select p.id from mdm.aa_principal p where p.name = 'unknown' limit 1)) as actor,
    exists (
      select
      from mdm.aa_job_runner r
      where r.hungry
        and r.expires_at > v_now
        and p_job_kind = any (r.kinds)
        and (r.tenant_ids is null or p_tenant_id = any (r.tenant_ids))) as hungry
  into v_kind
  from mdm.aa_job_kind k
  where k.job_kind = p_job_kind;

  if not found
    or not v_kind.enabled
    or not v_kind.tenant_known
    or not v_kind.tenant_allowed
    or (v_kind.tenant_required and p_tenant_id is null)
    or jsonb_typeof(p_payload) <> 'object'
    or pg_column_size(p_payload) > 16777216
    or pg_column_size(p_context) > 65536
    or octet_length(p_idempotency_key) not between 1 and 255
    or p_on_conflict not in ('ignore', 'update')
    or p_max_attempts < 1
    or p_available_at < '1970-01-01 00:00:00+00'
    or p_available_at >= '9999-12-31 00:00:00+00'
  then
    perform mdm._refuse_enqueue('', p_job_kind, p_payload, p_tenant_id, p_idempotency_key, p_on_conflict, p_max_attempts, p_available_at,
      p_context);
  end if;

  if p_idempotency_key is null then
    with job as (
      insert into mdm.aa_job (tenant_id, job_kind, priority, available_at, payload, context, max_attempts, created_at)
      values (p_tenant_id, p_job_kind, coalesce(p_priority, v_kind.priority), coalesce(p_available_at, v_now),
        coalesce(p_payload, '{}'), p_context, coalesce(p_max_attempts, v_kind.max_attempts), v_now)
      returning id),
    audit as (
      insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
      select v_now, 'job_enqueued', v_kind.actor, session_user, p_tenant_id, 'job', j.id::text,
        jsonb_build_object('job_kind', p_job_kind)
      from job j
      where v_kind.audit_level = 'full')
    select j.id into v_job_id from job j;
  else
    select e.o_job_id, e.o_outcome
    into v_job_id, v_outcome
    from mdm._enqueue_keyed(p_job_kind, p_payload, p_tenant_id, p_idempotency_key, coalesce(p_on_conflict = 'update', false), p_priority,
      p_available_at, p_max_attempts, p_context, v_kind.actor) e;
  end if;

  if v_kind.hungry and v_outcome <> 'existing' and coalesce(p_available_at <= v_now, true) then
    perform pg_notify('mdm_jobs', p_job_kind);
  end if;
  return v_job_id;
end
$$;

comment on function mdm.enqueue_job(text, jsonb, uuid, text, text, int, timestamptz, int, jsonb, uuid) is
  'Enqueues a job in the caller''s transaction and returns its id, also when the key existed (S2, S10.1, D6). p_payload: an object of at most 16 MiB. p_on_conflict: ignore (the newest job of the key comes back) or update (a pending job takes the new payload; else the next generation is made). p_priority: the smaller goes first, p_max_attempts >= 1, NULL = the kind''s. p_available_at: not claimed before, NULL = now; a time without zone is read in the session''s (D7). p_context: carried, never interpreted, at most 64 KiB. Errors: MJ003 unknown or disabled kind, MJ005 bad argument, MJ007 a login that is bound to tenants names another one.';
