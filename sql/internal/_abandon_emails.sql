-- The marks of runs that never said what the provider answered (S2.1): no run is left that finds them, so the log says that nobody
-- knows. Counted as mdm.mark_email would have: a replay sends at most as often as a retry.
create or replace function mdm._abandon_emails(p_job_ids bigint[], p_skip_held boolean)
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
  v_ids bigint[] := array(
    select l.id
    from mdm.aa_email_log l
    where l.job_id = any (p_job_ids)
      and l.status = 'sending');
  v_count int;
begin
  if p_skip_held then
    v_ids := array(select l.id from mdm.aa_email_log l where l.id = any (v_ids) for no key update skip locked);
  end if;
  update mdm.aa_email_log l
  set status = 'failed',
    unknown_sends = l.unknown_sends + 1,
    error = 'the provider''s answer was lost: it may have been sent'
  where l.id = any (v_ids)
    and l.status = 'sending'
    -- replayed and marked again since the caller looked: the row is locked, so what runs now is seen
    and not exists (
      select
      from mdm.aa_job j
      where j.id = l.job_id
        and j.claimed_at is not null
        and j.completed_at is null);
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function mdm._abandon_emails(bigint[], boolean) is
  'Sets log rows of these jobs from sending to failed, as one more lost answer, but for those that run; how many. p_skip_held: passes over rows that others hold. Private.';
