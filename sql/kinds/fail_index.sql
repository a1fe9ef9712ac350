-- Writes that a build failed where stewards look (S2.7): with the last attempt the status is failed, before it only the error shows.
create or replace function mdm.fail_index(p_job_id bigint, p_lease_no bigint, p_error text)
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  v_job record;
begin
  v_job := mdm._index_job(p_job_id, p_lease_no);
  perform mdm._set_index_status(v_job.job_kind, v_job.entity_type_id, v_job.key,
    case when v_job.is_last then 'failed' else 'building' end::mdm.index_status, mdm._cut_bytes(p_error, 1000));
  return v_job.is_last;
end
$$;

comment on function mdm.fail_index(bigint, bigint, text) is
  'Writes p_error (cut to 1,000 bytes) to index_error and, with the last of the job''s attempts, failed to index_status; true when it '
  'was the last. fail_job comes after it. MJ001 lease lost, MJ005 bad payload, 55P03 a steward holds the row.';
