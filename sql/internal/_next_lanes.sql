-- Moves each lane on to the next one of its kind (and tenant) that has a due job, all of them in one statement: an index probe for every
-- priority on the way. Lanes of a floor stay.
-- For a tenant the conditions are row comparisons, here and wherever else a lane of a tenant is read: with equalities the planner drops
-- tenant_id and job_kind from the order, and after statistics of few tenants it walks ix_aa_job_claim past the jobs of all the others.
create or replace function mdm._next_lanes(p_lanes mdm._lane[], p_now timestamptz)
returns mdm._lane[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  if p_lanes[1].tenant_id is null then
    return array(
      with recursive lane as (
        select p.job_kind, p.priority, case when p.floored then p.available_at else 'infinity' end as available_at, p.floored
        from unnest(p_lanes) p
        union all
        select l.job_kind, n.priority, n.available_at, false
        from lane l
        cross join lateral (
          select j.priority::bigint, j.available_at
          from mdm.aa_job j
          where j.status = 'pending'
            and j.job_kind = l.job_kind
            and j.priority > l.priority
          order by j.priority, j.available_at, j.id
          limit 1) n
        where not l.floored
          and l.available_at > p_now)
      select (l.job_kind, null, l.priority, l.available_at, l.floored)::mdm._lane
      from lane l
      where l.floored
        or l.available_at <= p_now);
  end if;
  return array(
    with recursive lane as (
      select p.tenant_id, p.job_kind, p.priority, case when p.floored then p.available_at else 'infinity' end as available_at, p.floored
      from unnest(p_lanes) p
      union all
      select l.tenant_id, l.job_kind, n.priority, n.available_at, false
      from lane l
      cross join lateral (
        select j.priority::bigint, j.available_at
        from mdm.aa_job j
        where j.status = 'pending'
          and j.tenant_id is not null
          and (j.tenant_id, j.job_kind, j.priority) > (l.tenant_id, l.job_kind, l.priority)
          and (j.tenant_id, j.job_kind) <= (l.tenant_id, l.job_kind)
        order by j.tenant_id, j.job_kind, j.priority, j.available_at, j.id
        limit 1) n
      where not l.floored
        and l.available_at > p_now)
    select (l.job_kind, l.tenant_id, l.priority, l.available_at, l.floored)::mdm._lane
    from lane l
    where l.floored
      or l.available_at <= p_now);
end
$$;

comment on function mdm._next_lanes(mdm._lane[], timestamptz) is
  'The next lane with a due job behind each of these; lanes of a floor stay. Private.';
