-- Uploads that nobody will import any more (S2.2).
create or replace function mdm._abandon_imports(p_job_ids bigint[], p_skip_held boolean)
returns int
language plpgsql
volatile
parallel unsafe
security invoker
set enable_seqscan = off
-- an empty list would prove the predicate of every partial index, and one of them would be walked
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_ids uuid[] := array(
    with open_imports as materialized (
      select mdm._uuid_of(o.payload ->> 'import_id') as import_id
      from mdm._open_payloads('bulk_import', p_job_ids) o (payload)
    )
    select i.id
    from mdm.aa_job d
    join mdm.aa_import i on i.id = mdm._uuid_of(d.payload ->> 'import_id')
    where d.id = any (p_job_ids)
      and d.job_kind = 'bulk_import'
      and i.tenant_id = d.tenant_id
      and i.status in ('pending', 'running')
      and not exists (select from open_imports o where o.import_id = i.id));
  v_count int;
begin
  if p_skip_held then
    v_ids := array(select i.id from mdm.aa_import i where i.id = any (v_ids) for no key update skip locked);
  end if;
  update mdm.aa_import i
  set status = 'failed',
    error = coalesce(i.error, 'the job that was to import the rows has ended without a result'),
    -- NULL: this pass has not begun, a replay begins it
    rows_total = case when i.status = 'running' then i.rows_total end,
    completed_at = clock_timestamp()
  where i.id = any (v_ids)
    and i.status in ('pending', 'running');
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function mdm._abandon_imports(bigint[], boolean) is
  'Sets uploads from pending or running to failed where one of these jobs was to import and no other is left; how many. p_skip_held: passes over rows that others hold. Private.';
