-- Says at the upload that its job will not try again (S2.2); what was imported stays, and a replay of the job goes on behind it.
create or replace function mdm.fail_import(p_job_id bigint, p_lease_no bigint, p_error text)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_import mdm.aa_import;
begin
  perform mdm.check_lease(p_job_id, p_lease_no);
  v_import := mdm._lock_import(p_job_id);
  update mdm.aa_import i
  set status = 'failed',
    error = mdm._cut_bytes(p_error, 8192),
    -- NULL: this pass has not begun, a replay begins it
    rows_total = case when i.status <> 'pending' then i.rows_total end,
    completed_at = clock_timestamp()
  where i.id = v_import.id
    and i.status <> 'done';
end
$$;

comment on function mdm.fail_import(bigint, bigint, text) is
  'Marks the upload of a claimed bulk_import as failed, for the last attempt (S2.2). MJ001 lease lost, MJ005 no such upload.';
