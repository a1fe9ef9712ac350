-- Trigger function for the registry of entity types (S2.8): setting is_external_source_target enqueues gin_backfill in the same
-- transaction; taking it back, or the type, enqueues one as well, which then drops the index.
create or replace function mdm.enqueue_gin_backfill()
returns trigger
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_old_key text := case when tg_op <> 'INSERT' and old.is_external_source_target then old.type_key end;
  v_new_key text := case when tg_op <> 'DELETE' and new.is_external_source_target then new.type_key end;
  -- the platform's, but a login that is bound to tenants may enqueue for these only
  v_tenant_id uuid := (mdm._bound_tenants())[1];
begin
  if v_old_key is distinct from v_new_key then
    if v_old_key is not null then
      perform mdm.enqueue_job('gin_backfill', jsonb_build_object('type_key', v_old_key), v_tenant_id);
    end if;
    if v_new_key is not null then
      perform mdm.enqueue_job('gin_backfill', jsonb_build_object('type_key', v_new_key), v_tenant_id);
    end if;
  end if;
  return null;
end
$$;

comment on function mdm.enqueue_gin_backfill() is
  'Trigger function, after insert, update or delete for each row of mdm.ddm_entity_type: enqueues gin_backfill where the GIN index that '
  'the type wants has changed (S2.8). Works with the rights of mdm_owner, whoever writes.';
