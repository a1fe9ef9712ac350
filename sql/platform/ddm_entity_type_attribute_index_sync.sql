-- Enqueues index_sync when a steward toggles searchable or sortable (S2.7). Made on our stand-in; on a platform's own table by its
-- owner's choice: the same statement, once.
do $$
begin
  if (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.ddm_entity_type_attribute'::regclass) = 'mdm_platform'::regrole then
    create or replace trigger ddm_entity_type_attribute_index_sync
      after insert or delete or update of searchable, sortable, data_type, attribute_key, entity_type_id
      on mdm.ddm_entity_type_attribute
      for each row
      execute function mdm.enqueue_index_sync();
  end if;
end
$$;
