-- Upkeep of the deliveries (S2.4): an endpoint that does not answer is tried with one post at a time, so that what waits behind it would
-- never have its turn. What was due for as long as all tries at their longest distance take is given up: visible, and replayable.
create or replace function mdm.give_up_deliveries(p_limit int default 1000)
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
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_events bigint[];
  v_tenant_ids uuid[] := mdm._bound_tenants();
begin
  if coalesce(p_limit, 1000) not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;
  with silent as materialized (
    select w.id,
      -- a year, where somebody wants tries without end
      make_interval(secs => least(k.max_attempts * extract(epoch from k.max_delay), 31536000)::double precision) as patience
    from mdm.aa_job_kind k
    join mdm.aa_webhook_endpoint w on w.failures >= k.max_attempts
    where k.job_kind = 'outbox_dispatch'
      and w.enabled
      and (v_tenant_ids is null or w.tenant_id = any (v_tenant_ids))
  ),
  waiting as materialized (
    select d.event_id, d.endpoint_id, s.patience
    from silent s
    cross join lateral (
      select c.event_id, c.endpoint_id
      from mdm.aa_webhook_delivery c
      where c.endpoint_id = s.id
        and c.status in ('pending', 'failed')
        and c.available_at < v_now - s.patience
        and not mdm._holds_lease(c.job_id, c.lease_no)
      order by c.available_at, c.event_id
      limit coalesce(p_limit, 1000)
      for no key update skip locked
    ) d
    limit coalesce(p_limit, 1000)
  ),
  given_up as (
    update mdm.aa_webhook_delivery d
    set status = 'dlq',
      last_error = mdm._cut_bytes(concat_ws('; ', 'given up after ' || w.patience || ' behind an endpoint that does not answer',
        d.last_error), 2000),
      job_id = null,
      lease_no = null,
      completed_at = v_now
    from waiting w
    where d.event_id = w.event_id
      and d.endpoint_id = w.endpoint_id
    returning d.event_id)
  select array_agg(g.event_id)
  into v_events
  from given_up g;
  perform mdm._end_events(v_events);
  return coalesce(cardinality(v_events), 0);
end
$$;

comment on function mdm.give_up_deliveries(int) is
  'Moves up to p_limit (1 .. 10,000) deliveries to dlq whose endpoint left the last max_attempts posts without an answer and that were due for max_attempts x max_delay of outbox_dispatch (ten hours by default) without having their turn; returns how many (S2.4). Part of mdm.cleanup_jobs. MJ005 bad limit.';
