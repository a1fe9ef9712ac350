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
begin
  return mdm._abandon_scans(mdm._dead_jobs('virus_scan'), true);
end
$$;

comment on function mdm.settle_scans() is
  'Sets virus_scan_status from pending to failed where the job that was to scan has died and no other is left, and returns how many. '
  'Part of mdm.cleanup_jobs. Replaying the job, or setting the status to pending, scans again.';
