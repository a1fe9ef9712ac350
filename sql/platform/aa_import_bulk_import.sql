-- Enqueues bulk_import when an upload is complete (S2.2). Made on our stand-in; on a platform's own table by its owner's choice.
do $$
begin
  if (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.aa_import'::regclass) = 'mdm_platform'::regrole then
    create or replace trigger aa_import_bulk_import
      after insert or update of status on mdm.aa_import
      for each row
      execute function mdm.enqueue_bulk_import();
  end if;
end
$$;
