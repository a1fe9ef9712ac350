-- Trigger function for the attachments (S2.6): the commit of an upload, and whatever puts the status back to pending, enqueues
-- virus_scan in the same transaction.
create or replace function mdm.enqueue_virus_scan()
returns trigger
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.virus_scan_status = 'pending' then
    perform mdm.enqueue_job('virus_scan', jsonb_build_object('attachment_id', new.id), new.tenant_id);
  end if;
  return null;
end
$$;

comment on function mdm.enqueue_virus_scan() is
  'Trigger function, after insert or update of virus_scan_status, storage_key or size_bytes for each row of mdm.ddm_attachment: enqueues '
  'virus_scan while the status is pending (S2.6). Works with the rights of mdm_owner, whoever writes.';
