-- Upkeep of virus_scan_status (S2.6): a job that died without a word (its runner was killed with the last attempt, or it was stopped)
-- leaves "pending" behind, which nobody scans any more. Driven by the dead jobs: those are few, attachments may be many.
create or replace function mdm.settle_scans()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  update mdm.ddm_attachment a
  set virus_scan_status = 'failed',
    virus_scan_result = coalesce(a.virus_scan_result, 'the job that was to scan it has ended without a result'),
    scanned_at = clock_timestamp()
  from mdm.aa_job d
  where d.job_kind = 'virus_scan'
    and d.status in ('dlq', 'failed')
    and a.id = mdm._uuid_of(d.payload ->> 'attachment_id')
    and a.tenant_id = d.tenant_id
    and a.virus_scan_status = 'pending'
    and not exists (
      select
      from mdm._open_payloads('virus_scan') o (payload)
      where mdm._uuid_of(o.payload ->> 'attachment_id') = a.id);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function mdm.settle_scans() is
  'Sets virus_scan_status from pending to failed where the job that was to scan has died and no other is left, and returns how many. '
  'Part of mdm.cleanup_jobs. Replaying the job, or setting the status to pending, scans again.';
