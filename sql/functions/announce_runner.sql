-- A runner process says that it lives, what it serves and whether it waits for work (design 5.5). Also clears away who has expired.
create or replace function mdm.announce_runner(p_runner_id text, p_kinds text[], p_tenant_ids uuid[] default null, p_hungry boolean default true)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_bound uuid[] := mdm._bound_tenants();
  v_tenant_ids uuid[] := p_tenant_ids;
begin
  if p_runner_id is null or p_kinds is null then
    perform mdm._raise('MJ005', 'p_runner_id or p_kinds is NULL', null, 'Name the process and its kinds; an empty list of kinds takes it off.');
  end if;

  -- what claim_job gives it
  if v_bound is not null then
    v_tenant_ids := array(select b.id from unnest(v_bound) b (id) where p_tenant_ids is null or b.id = any (p_tenant_ids));
  end if;

  delete from mdm.aa_job_runner r
  where r.runner_id in (
    select o.runner_id
    from mdm.aa_job_runner o
    where o.expires_at <= v_now
      or (o.runner_id = p_runner_id and cardinality(p_kinds) = 0)
    for update skip locked);

  if cardinality(p_kinds) > 0 then
    insert into mdm.aa_job_runner as r (runner_id, kinds, tenant_ids, hungry, seen_at, expires_at)
    values (p_runner_id, p_kinds, v_tenant_ids, coalesce(p_hungry, true), v_now, v_now + interval '90 seconds')
    on conflict (runner_id) do update
    set kinds = excluded.kinds,
      tenant_ids = excluded.tenant_ids,
      hungry = excluded.hungry,
      seen_at = excluded.seen_at,
      expires_at = excluded.expires_at;
  end if;
end
$$;

comment on function mdm.announce_runner(text, text[], uuid[], boolean) is
  'Registers a runner process for 90 seconds: its kinds, its tenants (NULL = all that the login may serve) and whether it wants a NOTIFY on channel mdm_jobs. An empty list of kinds takes it off. Not evidence about any lease. MJ005 when p_runner_id or p_kinds is NULL.';
