-- Records what became of posts (S2.4): commit it and no crash repeats them. An endpoint that gave no answer is left alone for a while,
-- so that a dead one cannot hold the pool (B111); one that answers, whatever it says, is not.
create or replace function mdm.record_deliveries(p_job_id bigint, p_lease_no bigint, p_results jsonb)
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
-- a plan made while the tables were empty must not read them whole
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_events bigint[];
  v_silent uuid[];
  v_answered uuid[];
  v_count int;
begin
  if jsonb_typeof(p_results) is distinct from 'array' then
    perform mdm._raise('MJ005', 'p_results is no array', null,
      'Give [{"event_id": 1, "endpoint_id": "...", "status": 200, "error": null}]; status null = no answer, error null = delivered.');
  end if;
  perform mdm.check_lease(p_job_id, p_lease_no);
  select count(*), array_agg(distinct s.event_id), array_agg(distinct s.endpoint_id) filter (where s.answered),
    array_agg(distinct s.endpoint_id) filter (where not s.answered)
  into v_count, v_events, v_answered, v_silent
  from mdm._store_deliveries(p_job_id, p_lease_no, p_results) s;

  -- locked in order: several jobs may record for one endpoint
  perform
  from mdm.aa_webhook_endpoint w
  where w.id = any (v_silent || v_answered)
    and (w.failures > 0 or w.id = any (v_silent))
  order by w.id
  for no key update;
  update mdm.aa_webhook_endpoint w
  set failures = 0,
    paused_until = null
  where w.id = any (v_answered)
    and w.failures > 0;
  update mdm.aa_webhook_endpoint w
  set failures = w.failures + 1,
    paused_until = clock_timestamp() + mdm._backoff(w.failures + 1, k.base_delay, k.max_delay, k.jitter, random())
  from mdm.aa_job_kind k
  where w.id = any (v_silent)
    and w.id <> all (coalesce(v_answered, '{}'))
    and k.job_kind = 'outbox_dispatch';

  perform mdm._end_events(v_events);
  return v_count;
end
$$;

comment on function mdm.record_deliveries(bigint, bigint, jsonb) is
  'Records posts of deliveries taken under this lease and returns how many were: an array of {event_id, endpoint_id, status, error}; status null = no answer, error null = delivered (S2.4). Others are tried again after the backoff of outbox_dispatch, and given up (dlq) after its max_attempts. An endpoint without an answer is paused for the backoff. MJ001 lease lost, MJ005 no array.';
