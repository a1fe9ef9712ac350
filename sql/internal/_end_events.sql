-- The last delivery of an event ends it (S2.4); locked, since two sessions may end the last two.
create or replace function mdm._end_events(p_event_ids bigint[])
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  perform
  from mdm.aa_outbox_event o
  where o.id = any (p_event_ids)
  order by o.id
  for no key update;
  update mdm.aa_outbox_event o
  set dispatched_at = clock_timestamp()
  where o.id = any (p_event_ids)
    and o.dispatched_at is null
    and not exists (
      select
      from mdm.aa_webhook_delivery d
      where d.event_id = o.id
        and d.completed_at is null);
end
$$;

comment on function mdm._end_events(bigint[]) is 'Sets dispatched_at of those of these events that no delivery is left of. Private.';
