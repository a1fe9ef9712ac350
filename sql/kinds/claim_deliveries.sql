-- Takes deliveries to post (S2.4), in a transaction of the handler's own: nothing is locked while it posts. What is taken belongs to
-- the job's lease: a job that dies loses it with its claim. A login that is bound to tenants takes those of their endpoints only.
create or replace function mdm.claim_deliveries(p_job_id bigint, p_lease_no bigint, p_limit int default 8, p_per_endpoint int default 4)
returns table (event_id bigint, endpoint_id uuid, url text, secret text, webhook_id text, body text)
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
  v_now timestamptz;
  v_planned int;
  v_tenant_ids uuid[] := mdm._bound_tenants();
begin
  if coalesce(p_limit, 8) not between 1 and 1000 or coalesce(p_per_endpoint, 4) not between 1 and 1000 then
    perform mdm._raise('MJ005', 'p_limit or p_per_endpoint is out of range', format('p_limit: %s, p_per_endpoint: %s', p_limit,
      p_per_endpoint), 'Use 1 to 1,000, or NULL for the default.');
  end if;
  perform mdm.check_lease(p_job_id, p_lease_no);
  -- one at a time, so that the count of each endpoint holds, and whoever finds nothing knows that others have it
  perform pg_advisory_xact_lock(6579046010);
  -- a large backlog is planned bit by bit, for as long as there is something to post
  loop
    v_planned := mdm._plan_deliveries(1000);
    v_now := clock_timestamp();
    return query
    with due as materialized (
      select d.event_id, d.endpoint_id
      from mdm.aa_webhook_endpoint w
      cross join lateral (
        -- an endpoint that did not answer is tried with one post
        select case when w.failures > 0 then 1 else coalesce(p_per_endpoint, 4) end - count(*) as posts
        from mdm.aa_webhook_delivery p
        left join mdm.aa_job j on j.id = p.job_id
        where p.endpoint_id = w.id
          and p.job_id is not null
          -- as mdm._holds_lease, which would be called for each row
          and case when j.id is null then v_tenant_ids is not null
            else j.lease_no = p.lease_no and j.claimed_at is not null and j.completed_at is null end
      ) room
      cross join lateral (
        select c.event_id, c.endpoint_id, c.available_at
        from mdm.aa_webhook_delivery c
        where c.endpoint_id = w.id
          and c.status in ('pending', 'failed')
          and c.available_at <= v_now
          and not exists (
            select
            from mdm.aa_job j
            where j.id = c.job_id
              and j.lease_no = c.lease_no
              and j.claimed_at is not null
              and j.completed_at is null)
          and (v_tenant_ids is null or c.job_id is null or exists (select from mdm.aa_job j where j.id = c.job_id))
        order by c.available_at, c.event_id
        limit greatest(room.posts, 0)
        for no key update skip locked
      ) d
      where w.enabled
        and (w.paused_until is null or w.paused_until <= v_now)
        and (v_tenant_ids is null or w.tenant_id = any (v_tenant_ids))
      order by d.available_at, d.event_id
      limit coalesce(p_limit, 8)
    ),
    taken as (
      update mdm.aa_webhook_delivery d
      set job_id = p_job_id,
        lease_no = p_lease_no,
        attempts = d.attempts + 1
      from due
      where d.event_id = due.event_id
        and d.endpoint_id = due.endpoint_id
      returning d.event_id, d.endpoint_id
    )
    select t.event_id, t.endpoint_id, w.url, w.secret, 'evt_' || o.id,
      jsonb_build_object(
        'id', 'evt_' || o.id, 'type', o.event_type, 'tenant_id', o.tenant_id, 'object_type', o.object_type, 'object_id', o.object_id,
        'timestamp', to_char(o.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'data', o.payload)::text
    from taken t
    join mdm.aa_webhook_endpoint w on w.id = t.endpoint_id
    join mdm.aa_outbox_event o on o.id = t.event_id;
    exit when found or v_planned < 1000;
  end loop;
end
$$;

comment on function mdm.claim_deliveries(bigint, bigint, int, int) is
  'Makes the deliveries of new events and takes up to p_limit that are due, so that an endpoint never has more than p_per_endpoint posts under way (one, when it did not answer last) (S2.4). They belong to the lease until mdm.record_deliveries or its end. A login that is bound to tenants gets those of their endpoints only. body is what is signed and posted. MJ001 lease lost, MJ005 limits outside 1 to 1,000.';
