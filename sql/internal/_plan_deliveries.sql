-- Makes the deliveries of new outbox events (S2.4): one an endpoint that wants the event. Each event has a state of its own; a cursor
-- over ids would skip what commits late (B112).
create or replace function mdm._plan_deliveries(p_limit int)
returns int
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_events int;
begin
  with events as materialized (
    select o.id, o.tenant_id, o.event_type
    from mdm.aa_outbox_event o
    where o.planned_at is null
      and o.dispatched_at is null
    order by o.id
    limit p_limit
    for no key update skip locked
  ),
  planned as (
    insert into mdm.aa_webhook_delivery (event_id, endpoint_id, available_at)
    select e.id, w.id, clock_timestamp()
    from events e
    join mdm.aa_webhook_endpoint w on w.tenant_id = e.tenant_id
    where w.enabled
      and (w.event_types = '{}' or e.event_type = any (w.event_types))
    returning event_id
  ),
  -- what nobody wants has come to its end
  noted as (
    update mdm.aa_outbox_event o
    set planned_at = clock_timestamp(),
      dispatched_at = case when not exists (select from planned p where p.event_id = o.id) then clock_timestamp() end
    from events e
    where o.id = e.id
    returning o.id
  )
  select count(*)
  into v_events
  from noted;
  return v_events;
end
$$;

comment on function mdm._plan_deliveries(int) is
  'Makes the deliveries of up to p_limit new events and returns how many events there were. Private.';
