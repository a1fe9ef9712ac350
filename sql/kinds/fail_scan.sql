-- Writes that content could not be scanned (S2.6): failed for good, or why the scan is still pending. Never clean.
create or replace function mdm.fail_scan(
  p_job_id bigint,
  p_lease_no bigint,
  p_storage_key text,
  p_size_bytes bigint,
  p_error text,
  p_retryable boolean default true)
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job record;
  v_is_final boolean;
begin
  v_job := mdm._scan_job(p_job_id, p_lease_no);
  v_is_final := v_job.is_last or not coalesce(p_retryable, true);
  update mdm.ddm_attachment a
  set virus_scan_status = case when v_is_final then 'failed' else a.virus_scan_status end,
    virus_scan_result = mdm._cut_bytes(p_error, 1000),
    scanned_at = case when v_is_final then clock_timestamp() end
  where a.id = v_job.attachment_id
    and a.tenant_id = v_job.tenant_id
    and a.storage_key = p_storage_key
    and a.size_bytes = p_size_bytes
    -- a scan that is repeated takes an older result away only when it has failed for good
    and (v_is_final or a.virus_scan_status = 'pending');
  return v_is_final;
end
$$;

comment on function mdm.fail_scan(bigint, bigint, text, bigint, text, boolean) is
  'Sets virus_scan_status failed and why, when p_retryable is false or this was the last attempt, and returns true; else writes only why '
  'it is still pending. fail_job comes after it. MJ001 lease lost, MJ005 bad payload.';
