-- Success of many jobs at once, for handlers that wrote nothing here: a lost lease is passed over, so it could not abort their writes.
create or replace function mdm.finish_jobs(p_job_ids bigint[], p_lease_nos bigint[], p_actor_principal_id uuid default null)
returns setof bigint
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
  v_now timestamptz := clock_timestamp();
  v_actor uuid := mdm._actor(p_actor_principal_id);
  v_ids bigint[] := mdm._lock_leased_many(p_job_ids, p_lease_nos);
begin
  return query
    with done as (
      update mdm.aa_job j
      set status = 'done',
        completed_at = v_now,
        last_error = null
      where j.id = any (v_ids)
      returning j.id, j.tenant_id, j.job_kind),
    audit as (
      insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
      select v_now, 'job_done', v_actor, session_user, d.tenant_id, 'job', d.id::text, jsonb_build_object('job_kind', d.job_kind)
      from done d
      join mdm.aa_job_kind k on k.job_kind = d.job_kind
      where k.audit_level = 'full')
    select d.id
    from done d;
end
$$;

comment on function mdm.finish_jobs(bigint[], bigint[], uuid) is
  'Ends many runs with success and returns the ids accepted; a job whose lease is gone is left out, never an error (D2). Only for jobs whose handlers wrote nothing to this database. MJ005 when the arrays differ in length.';
