-- Trigger function for the registry of attributes (S2.7): a toggle of searchable or sortable, and whatever else changes which index
-- is wanted, enqueues index_sync in the same transaction. Without an idempotency key: each toggle has its attempts and runs at once,
-- also while an older job waits for its retry; jobs look at what is wanted now, so a second one for the same attribute is a cheap done.
create or replace function mdm.enqueue_index_sync()
returns trigger
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_is_moved boolean := tg_op = 'UPDATE'
    and (old.entity_type_id, old.attribute_key) is distinct from (new.entity_type_id, new.attribute_key);
  v_had_index boolean := tg_op <> 'INSERT' and (old.searchable or old.sortable);
  v_wants_index boolean := tg_op <> 'DELETE' and (new.searchable or new.sortable);
  -- the platform's, but a login that is bound to tenants may enqueue for these only
  v_tenant_id uuid := (mdm._bound_tenants())[1];
begin
  if v_had_index and (tg_op = 'DELETE' or v_is_moved) then
    perform mdm.enqueue_job('index_sync',
      jsonb_build_object('entity_type_id', old.entity_type_id, 'attribute_key', old.attribute_key), v_tenant_id);
  end if;
  if tg_op = 'INSERT' and v_wants_index
    or tg_op = 'UPDATE' and (
      v_is_moved and v_wants_index
      or (old.searchable, old.sortable) is distinct from (new.searchable, new.sortable)
      or old.data_type is distinct from new.data_type and v_wants_index)
  then
    perform mdm.enqueue_job('index_sync',
      jsonb_build_object('entity_type_id', new.entity_type_id, 'attribute_key', new.attribute_key), v_tenant_id);
  end if;
  return null;
end
$$;

comment on function mdm.enqueue_index_sync() is
  'Trigger function, after insert, update or delete for each row of mdm.ddm_entity_type_attribute: enqueues index_sync where the index '
  'that the attribute wants may have changed (S2.7). Works with the rights of mdm_owner, whoever writes.';
