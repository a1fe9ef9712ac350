-- Enqueues virus_scan when an upload is committed (S2.6), and takes the result of the last scan away when the content is another one:
-- what was said of the old content does not hold for the new. Made on our stand-in; on a platform's own table by its owner's choice.
create or replace function mdm._forget_virus_scan()
returns trigger
language plpgsql
volatile
parallel unsafe
security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
  if (old.storage_key, old.size_bytes) is distinct from (new.storage_key, new.size_bytes) then
    new.virus_scan_status := 'pending';
    new.virus_scan_result := null;
    new.scanned_at := null;
  end if;
  return new;
end
$$;

comment on function mdm._forget_virus_scan() is
  'Trigger of ddm_attachment, before update: other content is pending until it is scanned (S2.6). Runs with the rights of the writer.';

do $$
begin
  if (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.ddm_attachment'::regclass) = 'mdm_platform'::regrole then
    create or replace trigger ddm_attachment_forget_virus_scan
      before update of storage_key, size_bytes on mdm.ddm_attachment
      for each row
      execute function mdm._forget_virus_scan();
    create or replace trigger ddm_attachment_virus_scan
      after insert or update of virus_scan_status, storage_key, size_bytes on mdm.ddm_attachment
      for each row
      execute function mdm.enqueue_virus_scan();
  end if;
end
$$;
