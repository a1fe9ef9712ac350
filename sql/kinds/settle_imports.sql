-- Upkeep of the uploads (S2.2): a job that died without a word (its runner was killed with the last attempt, it was stopped or
-- discarded) leaves "running" or "pending" behind, which nobody works on any more. An upload that is pending and never had a job is
-- left alone: an existing platform may enqueue its job later.
create or replace function mdm.settle_imports()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- a bound login does not see the jobs of other tenants, and must not take them for gone
  v_bound uuid[] := mdm._bound_tenants();
  v_count int;
begin
  update mdm.aa_import i
  set status = 'failed',
    error = coalesce(i.error, 'the job that was to import the rows has ended without a result'),
    -- NULL: this pass has not begun, a replay begins it
    rows_total = case when i.status = 'running' then i.rows_total end,
    completed_at = clock_timestamp()
  where i.status in ('pending', 'running')
    and (v_bound is null or i.tenant_id = any(v_bound))
    and not exists (
      select
      from mdm._open_payloads('bulk_import') o (payload)
      where o.payload ->> 'import_id' = i.id::text)
    and (i.status = 'running' or exists (
      select
      from mdm.aa_job d
      where d.job_kind = 'bulk_import'
        and d.status in ('dlq', 'failed')
        and d.payload ->> 'import_id' = i.id::text));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function mdm.settle_imports() is
  'Sets uploads to failed whose job has died and where no other is left that imports, and returns how many. Part of mdm.cleanup_jobs. '
  'Replaying the job goes on where the import stood; setting the upload to pending begins a new pass.';
