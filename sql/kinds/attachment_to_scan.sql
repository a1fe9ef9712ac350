-- What a claimed virus_scan has to look at (S2.6). The content itself lies in the object store.
create or replace function mdm.attachment_to_scan(p_job_id bigint, p_lease_no bigint)
returns table (storage_key text, size_bytes bigint)
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
  return query
    select a.storage_key, a.size_bytes
    from mdm.ddm_attachment a
    where a.id = v_job.attachment_id
      and a.tenant_id = v_job.tenant_id;
end
$$;

comment on function mdm.attachment_to_scan(bigint, bigint) is
  'Where the content of a claimed virus_scan''s attachment lies and how many bytes it has; no row: the attachment is gone, or it is '
  'another tenant''s. MJ001 lease lost, MJ005 bad payload.';
