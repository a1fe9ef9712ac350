-- Trigger function for the uploads (S2.2): an upload that is complete enqueues its bulk_import in the same transaction. The key is the
-- upload's own, so that nobody waits for anybody; setting the status to pending again makes the job run again.
create or replace function mdm.enqueue_bulk_import()
returns trigger
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.status = 'pending' then
    perform mdm.enqueue_job('bulk_import', jsonb_build_object('import_id', new.id), new.tenant_id,
      p_idempotency_key => 'import-' || new.id, p_on_conflict => 'update');
  end if;
  return null;
end
$$;

comment on function mdm.enqueue_bulk_import() is
  'Trigger function, after insert or update of status for each row of mdm.aa_import: enqueues bulk_import while the status is pending (S2.2). Works with the rights of mdm_owner, whoever writes.';
