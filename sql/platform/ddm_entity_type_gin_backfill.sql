-- Enqueues gin_backfill when a type becomes the target of external sources (S2.8). Made on our stand-in; on a platform's own table by
-- its owner's choice: the same statement, once.
do $$
begin
  if (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.ddm_entity_type'::regclass) = 'mdm_platform'::regrole then
    create or replace trigger ddm_entity_type_gin_backfill
      after insert or delete or update of is_external_source_target, type_key
      on mdm.ddm_entity_type
      for each row
      execute function mdm.enqueue_gin_backfill();
  end if;
end
$$;
