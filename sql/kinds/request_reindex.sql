-- How a steward has search vectors rebuilt (S2.3): the job is enqueued in the transaction of what makes it necessary. One key a tenant
-- and type, on conflict update (D6): asked for again while it waits it is one job, which no worker takes before this transaction ends;
-- asked for while it runs it is one more, since the one under way may have passed the rows already.
create or replace function mdm.request_reindex(
  p_tenant_id uuid,
  p_entity_type text default null,
  p_actor_principal_id uuid default null)
returns bigint
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_payload jsonb := jsonb_strip_nulls(jsonb_build_object('entity_type', p_entity_type));
  v_type_id uuid := mdm._reindex_type(v_payload);
  v_job_id bigint;
begin
  v_job_id := mdm.enqueue_job(
    p_job_kind => 'reindex',
    p_payload => v_payload,
    p_tenant_id => p_tenant_id,
    p_idempotency_key => 'reindex/' || coalesce(v_type_id::text, 'all'),
    p_on_conflict => 'update',
    p_actor_principal_id => p_actor_principal_id);
  -- one that waits for its retry begins again: what it has rebuilt already was before this request
  perform mdm._forget_progress(array[v_job_id]);
  return v_job_id;
end
$$;

comment on function mdm.request_reindex(uuid, text, uuid) is
  'Enqueues the reindex of a tenant and entity type (type_key, NULL = all types) in the caller''s transaction and returns the job''s id (S2.3). p_tenant_id NULL = all tenants. While one of the same tenant and type waits, that one''s id comes back; while one runs, the next is made. Errors: MJ005 unknown type or tenant, MJ003 kind disabled, MJ007 a login that is bound to tenants names another one or none.';
