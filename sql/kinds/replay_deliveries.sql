-- Brings deliveries back that were given up (S2.4), for instance when the consumer is well again. The events are locked before their
-- deliveries, as compact_outbox does which deletes both.
create or replace function mdm.replay_deliveries(
  p_endpoint_id uuid,
  p_event_id bigint default null,
  p_limit int default 1000,
  p_reason text default null,
  p_actor_principal_id uuid default null)
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_events bigint[];
  v_tenant_id uuid;
  v_tenant_ids uuid[] := mdm._bound_tenants();
begin
  if coalesce(p_limit, 1000) not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;
  select w.tenant_id
  into v_tenant_id
  from mdm.aa_webhook_endpoint w
  where w.id = p_endpoint_id
    and (v_tenant_ids is null or w.tenant_id = any (v_tenant_ids));
  if not found then
    perform mdm._raise('MJ002', format('no such endpoint %s', coalesce(p_endpoint_id::text, 'NULL')), null,
      'Look for the endpoint_id in mdm.v_webhook_dlq.');
  end if;
  v_events := array(
    select c.event_id
    from mdm.aa_webhook_delivery c
    where c.endpoint_id = p_endpoint_id
      and c.status = 'dlq'
      and (p_event_id is null or c.event_id = p_event_id)
    order by c.event_id
    limit coalesce(p_limit, 1000));
  perform
  from mdm.aa_outbox_event o
  where o.id = any (v_events)
  order by o.id
  for no key update;
  with back as (
    update mdm.aa_webhook_delivery d
    set status = 'pending',
      attempts = 0,
      available_at = clock_timestamp(),
      completed_at = null
    where d.endpoint_id = p_endpoint_id
      and d.event_id = any (v_events)
      and d.status = 'dlq'
    returning d.event_id)
  select array_agg(b.event_id order by b.event_id)
  into v_events
  from back b;
  if v_events is null then
    return 0;
  end if;
  update mdm.aa_outbox_event o
  set dispatched_at = null
  where o.id = any (v_events);
  perform mdm.enqueue_job('outbox_dispatch', p_tenant_id => case when v_tenant_ids is not null then v_tenant_id end);
  perform mdm._audit('job_replay', p_actor_principal_id, v_tenant_id, 'webhook_endpoint', p_endpoint_id::text,
    jsonb_build_object('deliveries', cardinality(v_events), 'event_id', p_event_id, 'reason', p_reason));
  return cardinality(v_events);
end
$$;

comment on function mdm.replay_deliveries(uuid, bigint, int, text, uuid) is
  'Brings up to p_limit (1 .. 10,000) dead deliveries of an endpoint back, or that of one event, and returns how many (S2.4). Audit job_replay. MJ002 no such endpoint, MJ005 bad limit.';
