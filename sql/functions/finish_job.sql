-- Success (S5.1): the last statement of the handler's transaction, so that its writes and the status commit together. The row is
-- reached by id alone, and not locked unless it runs under this lease: a late worker waits for nobody (status as text: finish_jobs).
create or replace function mdm.finish_job(p_job_id bigint, p_lease_no bigint, p_actor_principal_id uuid default null)
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
  v_found boolean;
begin
  with done as (
    update mdm.aa_job j
    set status = 'done',
      completed_at = clock_timestamp(),
      last_error = null
    where j.id = p_job_id
      and j.lease_no = p_lease_no
      and j.status::text = 'running'
    returning j.id, j.tenant_id, j.job_kind, j.completed_at),
  audit as (
    insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
    select d.completed_at, 'job_done', mdm._actor(p_actor_principal_id), session_user, d.tenant_id, 'job', d.id::text,
      jsonb_build_object('job_kind', d.job_kind)
    from done d
    join mdm.aa_job_kind k on k.job_kind = d.job_kind
    where k.audit_level = 'full')
  select exists (select from done d) into v_found;
  if not v_found then
    perform mdm._raise_lease_lost(p_job_id, p_lease_no);
  end if;
end
$$;

comment on function mdm.finish_job(bigint, bigint, uuid) is
  'Ends a run with success, in the transaction of the handler''s own writes (S5.1). MJ001 when the lease is gone: the transaction aborts and its writes with it (D2).';
