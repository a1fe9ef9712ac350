-- Where a claim begins in every kind that it serves (and tenant): at the lanes of p_floor, or else at the first with a due job.
-- Unregistered and paused kinds are left out; a login that is bound to tenants (as _bound_tenants has it) claims for these only.
create or replace function mdm._first_lanes(p_kinds text[], p_tenant_ids uuid[], p_floor jsonb, p_now timestamptz)
returns mdm._lane[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_tenant_ids uuid[] := mdm._bound_tenants();
  v_exact boolean := (p_floor ?& p_kinds) is not true;
  v_lanes mdm._lane[] := array[]::mdm._lane[];
begin
  if p_floor is not null then
    begin
      -- read whole before anything is filtered (offset 0): a malformed floor is refused whatever the claim serves
      v_lanes := array(
        select (f.job_kind, null, f.priority, f.available_at, true)::mdm._lane
        from (
          select k.key as job_kind, l.key::int as priority, coalesce(l.value, 'null')::timestamptz as available_at
          from jsonb_each(p_floor) k
          cross join lateral jsonb_each_text(k.value) l
          offset 0) f
        where (
          select k.paused_until is null or k.paused_until <= p_now
          from mdm.aa_job_kind k
          where k.job_kind = f.job_kind
            and k.job_kind = any (p_kinds)));
    exception
      when data_exception then
        perform mdm._raise('MJ005', format('p_floor is malformed: %s', sqlerrm), null,
          'Pass {"kind": {"priority": "timestamp with time zone"}}, or NULL for an exact scan.');
    end;
  end if;
  if v_exact then
    v_lanes := v_lanes || array(
      select (k.job_kind, null, -2147483649, null, false)::mdm._lane
      from mdm.aa_job_kind k
      where k.job_kind = any (p_kinds)
        and (k.paused_until is null or k.paused_until <= p_now)
        and (p_floor ? k.job_kind) is not true);
  end if;
  if v_tenant_ids is not null or p_tenant_ids is not null then
    v_lanes := array(
      select (l.job_kind, t.id, l.priority, l.available_at, l.floored)::mdm._lane
      from (
        select distinct u.id
        from unnest(coalesce(v_tenant_ids, p_tenant_ids)) u (id)
        where u.id = any (coalesce(p_tenant_ids, v_tenant_ids))) t
      cross join unnest(v_lanes) l);
  end if;
  return case when v_exact then mdm._next_lanes(v_lanes, p_now) else v_lanes end;
end
$$;

comment on function mdm._first_lanes(text[], uuid[], jsonb, timestamptz) is
  'The lanes at which a claim begins: those of the floor, and of kinds without one the first with a due job. MJ005 unless p_floor is {kind: {priority: timestamptz}}. Private.';
