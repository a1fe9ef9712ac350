-- Puts locked running jobs back to pending (D4), or ends those that a newer job of their key supersedes (D6).
create or replace function mdm._release_locked(p_job_ids bigint[], p_retry_afters interval[], p_reason text)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_retired bigint[] := array(select r.id from mdm._retire_superseded(p_job_ids, null) r (id));
begin
  update mdm.aa_job j
  set status = 'pending',
    attempts = greatest(j.attempts - 1, 0),
    releases = least(j.releases, 2147483646) + 1,
    available_at = coalesce(v_now + g.retry_after, j.available_at),
    last_error = coalesce(mdm._cut_bytes('released: ' || p_reason, 8192), j.last_error),
    claimed_by = null,
    claimed_at = null,
    heartbeat_at = null
  from (
    select l.id, mdm._clamp_delay(l.retry_after, k.max_delay) as retry_after
    from unnest(p_job_ids, p_retry_afters) as l (id, retry_after)
    join mdm.aa_job o on o.id = l.id
    join mdm.aa_job_kind k on k.job_kind = o.job_kind
    where l.id <> all (v_retired)) g
  where j.id = g.id;
end
$$;

comment on function mdm._release_locked(bigint[], interval[], text) is 'Puts locked running jobs back, attempt and place given back (D4). Private.';
