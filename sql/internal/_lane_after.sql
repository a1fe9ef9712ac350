-- The next lane of a kind (and tenant) behind a priority that has a due job: one index probe per priority that exists. With a floor
-- only the priorities in it are looked at, each from its time on: what lies below is dead index entries (design 5.2).
-- For a tenant the conditions are row comparisons, here and wherever else a lane of a tenant is read: with equalities the planner drops
-- tenant_id and job_kind from the order, and after statistics of few tenants it walks ix_aa_job_claim past the jobs of all the others.
create or replace function mdm._lane_after(
  p_job_kind text,
  p_tenant_id uuid,
  p_priority bigint,
  p_floor jsonb,
  p_now timestamptz)
returns mdm._lane
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_lane mdm._lane;
  v_floor record;
  v_priority bigint := p_priority;
begin
  if p_floor is not null then
    for v_floor in
      select f.key::int as priority, f.value::timestamptz as available_at
      from jsonb_each_text(p_floor) f
      where f.key::int > p_priority
      order by f.key::int
    loop
      v_lane := mdm._lane_head(p_job_kind, p_tenant_id, v_floor.priority, v_floor.available_at, p_now);
      exit when v_lane.priority is not null;
    end loop;
    return v_lane;
  end if;

  loop
    if p_tenant_id is null then
      select p_job_kind, null::uuid, j.priority, j.available_at, j.run_alone
      into v_lane
      from mdm.aa_job j
      where j.status = 'pending'
        and j.job_kind = p_job_kind
        and j.priority > v_priority
      order by j.priority, j.available_at, j.id
      limit 1;
    else
      select p_job_kind, p_tenant_id, j.priority, j.available_at, j.run_alone
      into v_lane
      from mdm.aa_job j
      where j.status = 'pending'
        and j.tenant_id is not null
        and (j.tenant_id, j.job_kind, j.priority) > (p_tenant_id, p_job_kind, v_priority)
        and (j.tenant_id, j.job_kind) <= (p_tenant_id, p_job_kind)
      order by j.tenant_id, j.job_kind, j.priority, j.available_at, j.id
      limit 1;
    end if;
    exit when not found or v_lane.available_at <= p_now;
    -- nothing in this lane is due
    v_priority := v_lane.priority;
    v_lane := null;
  end loop;
  return v_lane;
end
$$;

comment on function mdm._lane_after(text, uuid, bigint, jsonb, timestamptz) is
  'The next lane behind p_priority that has a due job, NULLs when there is none. Private.';
