-- Writes what the scanner said of the whole content (S2.6), in the transaction of finish_job (S5.1). Storage key and size say which
-- content that was: a result is not written onto content that came meanwhile and has a job of its own.
create or replace function mdm.record_scan(
  p_job_id bigint,
  p_lease_no bigint,
  p_storage_key text,
  p_size_bytes bigint,
  p_found text)
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job record;
begin
  v_job := mdm._scan_job(p_job_id, p_lease_no);
  update mdm.ddm_attachment a
  set virus_scan_status = case when p_found is null then 'clean' else 'infected' end::mdm.virus_scan_status,
    virus_scan_result = mdm._cut_bytes(p_found, 1000),
    scanned_at = clock_timestamp()
  where a.id = v_job.attachment_id
    and a.tenant_id = v_job.tenant_id
    and a.storage_key = p_storage_key
    and a.size_bytes = p_size_bytes;
  return found;
end
$$;

comment on function mdm.record_scan(bigint, bigint, text, bigint, text) is
  'Sets virus_scan_status of a claimed virus_scan''s attachment: clean when p_found is NULL, else infected with p_found as result. False, '
  'and nothing written, when the attachment is gone or its content another one. MJ001 lease lost, MJ005 bad payload.';
