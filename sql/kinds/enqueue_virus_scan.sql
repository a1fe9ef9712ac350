-- Trigger function for the attachments (S2.6): the commit of an upload, other content, and a status that is put back to pending enqueue
-- virus_scan in the same transaction. An update that leaves all three as they are does not: virus_scan itself writes such ones.
create or replace function mdm.enqueue_virus_scan()
returns trigger
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.virus_scan_status = 'pending'
    and (tg_op = 'INSERT'
      or (old.virus_scan_status, old.storage_key, old.size_bytes)
        is distinct from (new.virus_scan_status, new.storage_key, new.size_bytes))
  then
    perform mdm.enqueue_job('virus_scan', jsonb_build_object('attachment_id', new.id), new.tenant_id);
  end if;
  return null;
end
$$;

comment on function mdm.enqueue_virus_scan() is
  'Trigger function, after insert or update of virus_scan_status, storage_key or size_bytes for each row of mdm.ddm_attachment: enqueues '
  'virus_scan where the status has become pending or the content another one (S2.6). Works with the rights of mdm_owner, whoever writes.';
