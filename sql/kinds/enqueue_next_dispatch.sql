-- Sees to it that what is left is tried in time (S2.4). Deliveries have a backoff of their own and jobs have none to wait with, so the
-- run that finds nothing due enqueues the next one, in slots of five seconds that all runs share.
create or replace function mdm.enqueue_next_dispatch(p_job_id bigint, p_lease_no bigint)
returns timestamptz
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_due timestamptz;
  v_slot bigint;
  v_tenant_ids uuid[] := mdm._bound_tenants();
begin
  perform mdm.check_lease(p_job_id, p_lease_no);
  select min(greatest(d.available_at, w.paused_until))
  into v_due
  from mdm.aa_webhook_endpoint w
  cross join lateral (
    select c.available_at
    from mdm.aa_webhook_delivery c
    where c.endpoint_id = w.id
      and c.status in ('pending', 'failed')
      and not mdm._holds_lease(c.job_id, c.lease_no)
    order by c.available_at, c.event_id
    limit 1
  ) d
  where w.enabled
    and (v_tenant_ids is null or w.tenant_id = any (v_tenant_ids));
  if v_due is null then
    return null;
  end if;
  v_slot := 5 * ceil(extract(epoch from greatest(v_due, clock_timestamp() + interval '1 second')) / 5);
  perform mdm.enqueue_job('outbox_dispatch', p_tenant_id => v_tenant_ids[1], p_idempotency_key => 'at-' || v_slot,
    p_available_at => to_timestamp(v_slot));
  return to_timestamp(v_slot);
end
$$;

comment on function mdm.enqueue_next_dispatch(bigint, bigint) is
  'Enqueues the outbox_dispatch that takes the next delivery which is not under way, unless there is one, and returns when; NULL = nothing is left (S2.4). For the end of a run. MJ001 lease lost.';
