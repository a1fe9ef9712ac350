-- The upkeep's look at the outbox (S2.4): should an event or a delivery wait for 30 s although nothing stands in its way, whatever the
-- reason (a disabled trigger, a discarded job), one outbox_dispatch is enqueued.
create or replace function mdm.wake_outbox()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before timestamptz := clock_timestamp() - interval '30 seconds';
  v_tenant_ids uuid[] := mdm._bound_tenants();
begin
  if not exists (
    select
    from mdm.aa_outbox_event o
    where o.planned_at is null
      and o.dispatched_at is null
      and o.created_at < v_before
      and (v_tenant_ids is null or o.tenant_id = any (v_tenant_ids)))
  and not exists (
    select
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
      and (v_tenant_ids is null or w.tenant_id = any (v_tenant_ids))
      and greatest(d.available_at, w.paused_until) < v_before)
  then
    return 0;
  end if;
  -- one that is due already does it
  if exists (
    select
    from mdm.aa_job j
    where j.job_kind = 'outbox_dispatch'
      and j.status = 'pending'
      and j.available_at <= clock_timestamp())
  then
    return 0;
  end if;
  perform mdm.enqueue_job('outbox_dispatch', p_tenant_id => v_tenant_ids[1]);
  return 1;
end
$$;

comment on function mdm.wake_outbox() is
  'Enqueues one outbox_dispatch where an event or a due delivery waits for more than 30 s and no such job is due; returns 1, else 0 (S2.4).';
