-- Where the next p_limit jobs of a claim stand, in the order of available_at and id over the lanes of the best priority; only the first
-- when that runs alone (D3). Looks without locks: to lock the full number in every lane would hide them from everybody else.
-- Row comparisons: see _next_lanes.
create or replace function mdm._look(
  p_lanes mdm._lane[],
  p_limit int,
  p_taken bigint[],
  p_now timestamptz,
  out o_places int[],
  out o_alone boolean,
  out o_priority bigint)
returns record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_alone boolean[];
begin
  o_priority := p_lanes[1].priority;
  if cardinality(p_lanes) > 1 then
    o_priority := (select min(l.priority) from unnest(p_lanes) l);
  end if;
  if p_lanes[1].tenant_id is null then
    select array_agg(n.place::int), array_agg(n.run_alone)
    into o_places, v_alone
    from (
      select l.place, j.run_alone
      from unnest(p_lanes) with ordinality l (job_kind, tenant_id, priority, available_at, floored, place)
      cross join lateral (
        select a.id, a.available_at, a.run_alone
        from mdm.aa_job a
        where a.status = 'pending'
          and a.job_kind = l.job_kind
          and a.priority = l.priority
          and a.available_at between l.available_at and p_now
          and a.id <> all (p_taken)
        order by a.available_at, a.id
        limit p_limit) j
      where l.priority = o_priority
      order by j.available_at, j.id
      limit p_limit) n;
  else
    select array_agg(n.place::int), array_agg(n.run_alone)
    into o_places, v_alone
    from (
      select l.place, j.run_alone
      from unnest(p_lanes) with ordinality l (job_kind, tenant_id, priority, available_at, floored, place)
      cross join lateral (
        select a.id, a.available_at, a.run_alone
        from mdm.aa_job a
        where a.status = 'pending'
          and a.tenant_id is not null
          and (a.tenant_id, a.job_kind, a.priority, a.available_at) >= (l.tenant_id, l.job_kind, l.priority, l.available_at)
          and (a.tenant_id, a.job_kind, a.priority, a.available_at) <= (l.tenant_id, l.job_kind, l.priority, p_now)
          and a.id <> all (p_taken)
        order by a.tenant_id, a.job_kind, a.priority, a.available_at, a.id
        limit p_limit) j
      where l.priority = o_priority
      order by j.available_at, j.id
      limit p_limit) n;
  end if;
  o_alone := coalesce(v_alone[1], false);
  o_places := case when o_alone then o_places[:1] else coalesce(o_places, '{}') end;
end
$$;

comment on function mdm._look(mdm._lane[], int, bigint[], timestamptz) is
  'The best priority of the lanes, for each of its next p_limit jobs, except p_taken, the place of its lane in p_lanes, and whether the first runs alone (D3): then it is the only one. Private.';
