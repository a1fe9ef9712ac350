-- What nobody will scan any more (S2.6): "pending" would be a promise. Never clean.
create or replace function mdm._abandon_scans(p_job_ids bigint[], p_skip_held boolean)
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
    with open_scans as materialized (
      select mdm._uuid_of(o.payload ->> 'attachment_id') as attachment_id
      from mdm._open_payloads('virus_scan', p_job_ids) o (payload)
    )
    select a.id
    from mdm.aa_job d
    join mdm.ddm_attachment a on a.id = mdm._uuid_of(d.payload ->> 'attachment_id')
    where d.id = any (p_job_ids)
      and d.job_kind = 'virus_scan'
      and a.tenant_id = d.tenant_id
      and a.virus_scan_status = 'pending'
      and not exists (select from open_scans o where o.attachment_id = a.id));
  v_count int;
begin
  if p_skip_held then
    v_ids := array(select a.id from mdm.ddm_attachment a where a.id = any (v_ids) for no key update skip locked);
  end if;
  update mdm.ddm_attachment a
  set virus_scan_status = 'failed',
    virus_scan_result = coalesce(a.virus_scan_result, 'the job that was to scan it has ended without a result'),
    scanned_at = clock_timestamp()
  where a.id = any (v_ids)
    and a.virus_scan_status = 'pending';
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function mdm._abandon_scans(bigint[], boolean) is
  'Sets virus_scan_status from pending to failed where one of these jobs was to scan and no other is left; how many. p_skip_held: passes over rows that others hold. Private.';
