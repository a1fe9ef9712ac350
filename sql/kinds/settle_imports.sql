-- Upkeep of the uploads (S2.2): a job that died without a word (its runner was killed with the last attempt, or it was stopped) leaves
-- "running" or "pending" behind, which nobody works on any more. Driven by the dead jobs: an upload that never had a job is left alone,
-- an existing platform may enqueue it later.
create or replace function mdm.settle_imports()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return mdm._abandon_imports(mdm._dead_jobs('bulk_import'), true);
end
$$;

comment on function mdm.settle_imports() is
  'Sets uploads to failed whose job has died and where no other is left that imports, and returns how many. Part of mdm.cleanup_jobs. '
  'Replaying the job goes on where the import stood; setting the upload to pending begins a new pass.';
