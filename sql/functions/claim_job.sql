-- The claim (S4, D16): the next due jobs of these kinds and tenants, in the order of priority, available_at and id.
-- A lane is (kind, priority), for bound workers (tenant, kind, priority). Every look into the table is an equality probe of a lane
-- with available_at bounded on both sides, so a backlog that is not claimable costs nothing (design 5.1). The planner is pinned: a
-- plan cached while the table was empty must serve when it is huge, so there is one plan per statement, made of index probes (without
-- force_generic_plan each call planned anew, at twice the cost). jit off: the price tag of a disabled path would switch it on.
create or replace function mdm.claim_job(
  p_worker_id text,
  p_kinds text[],
  p_tenant_ids uuid[] default null,
  p_limit int default 1,
  p_floor jsonb default null)
returns setof mdm.aa_job
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_ids bigint[];
begin
  if coalesce(p_worker_id, '') = '' or p_kinds is null or coalesce(p_limit, 1) not between 1 and 10000 then
    perform mdm._raise('MJ005', 'p_worker_id is empty or p_kinds is NULL, or p_limit is not within 1 .. 10000', null,
      'Name the worker and the kinds it serves; an empty list of kinds claims nothing (D13).');
  end if;

  v_ids := mdm._pick_jobs(p_kinds, p_tenant_ids, coalesce(p_limit, 1), p_floor, v_now);
  if cardinality(v_ids) = 0 then
    return;
  end if;

  return query
    with claimed as (
      update mdm.aa_job j
      set status = 'running',
        claimed_by = p_worker_id,
        claimed_at = v_now,
        heartbeat_at = null,
        lease_no = uuid_hash_extended(gen_random_uuid(), 0) & 9007199254740991,
        attempts = least(j.attempts, 2147483646) + 1,
        claimed_together = cardinality(v_ids)
      where j.id = any (v_ids)
      returning j.*)
    select c.*
    from claimed c
    order by c.priority, c.available_at, c.id;
end
$$;

comment on function mdm.claim_job(text, text[], uuid[], int, jsonb) is
  'Claims up to p_limit (1 .. 10,000) due jobs and returns them in the order of priority, available_at, id (S4.1, D16). p_worker_id: <host>/<pid>/<uuid> (S3.2). p_kinds: unregistered and paused kinds give nothing. p_tenant_ids: NULL = all tenants and platform jobs, a list = these tenants only (D13). p_floor: {kind: {priority: timestamptz}}: a kind in it is looked at in these priorities only, from that available_at on; NULL = the exact scan. A job marked run_alone comes alone, so a short batch does not mean an empty queue, only no row does (D3). MJ005 bad argument.';
