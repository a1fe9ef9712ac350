-- The best lane with a due job of every kind, or of every tenant and kind, that a claim serves. Unregistered and paused kinds are left
-- out; a login that is bound to tenants claims for these only.
create or replace function mdm._first_lanes(p_kinds text[], p_tenant_ids uuid[], p_floor jsonb, p_now timestamptz)
returns mdm._lane[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_tenant_ids uuid[] := mdm._bound_tenants();
  v_source record;
  v_lane mdm._lane;
  v_lanes mdm._lane[] := array[]::mdm._lane[];
begin
  if v_tenant_ids is null then
    v_tenant_ids := p_tenant_ids;
  elsif p_tenant_ids is not null then
    v_tenant_ids := array(select t.id from unnest(v_tenant_ids) t (id) where t.id = any (p_tenant_ids));
  end if;

  for v_source in
    select k.job_kind, t.id as tenant_id
    from mdm.aa_job_kind k
    left join (select distinct u.id from unnest(v_tenant_ids) u (id) where u.id is not null) t on true
    where k.job_kind = any (p_kinds)
      and (k.paused_until is null or k.paused_until <= p_now)
      and (v_tenant_ids is null or t.id is not null)
  loop
    v_lane := mdm._lane_after(v_source.job_kind, v_source.tenant_id, -2147483649, p_floor -> v_source.job_kind, p_now);
    if v_lane.priority is not null then
      v_lanes := v_lanes || v_lane;
    end if;
  end loop;
  return v_lanes;
end
$$;

comment on function mdm._first_lanes(text[], uuid[], jsonb, timestamptz) is
  'The first lane with a due job of every kind (and tenant, if the claim is restricted to tenants). Private.';
