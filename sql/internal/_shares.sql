-- How many of the next p_limit jobs of some lanes, merged by available_at and id, stand in each lane. Looks without locks.
-- Row comparisons: see _lane_after.
create or replace function mdm._shares(p_lanes mdm._lane[], p_limit int, p_taken bigint[], p_now timestamptz)
returns int[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  if p_lanes[1].tenant_id is null then
    return array(
      select count(m.id)::int
      from unnest(p_lanes) with ordinality l (job_kind, tenant_id, priority, available_at, run_alone, place)
      left join (
        select n.place, n.id
        from (
          select o.place, j.id, j.available_at
          from unnest(p_lanes) with ordinality o (job_kind, tenant_id, priority, available_at, run_alone, place)
          cross join lateral (
            select a.id, a.available_at
            from mdm.aa_job a
            where a.status = 'pending'
              and a.job_kind = o.job_kind
              and a.priority = o.priority
              and a.available_at between o.available_at and p_now
              and a.id <> all (p_taken)
            order by a.available_at, a.id
            limit p_limit) j) n
        order by n.available_at, n.id
        limit p_limit) m on m.place = l.place
      group by l.place
      order by l.place);
  end if;
  return array(
    select count(m.id)::int
    from unnest(p_lanes) with ordinality l (job_kind, tenant_id, priority, available_at, run_alone, place)
    left join (
      select n.place, n.id
      from (
        select o.place, j.id, j.available_at
        from unnest(p_lanes) with ordinality o (job_kind, tenant_id, priority, available_at, run_alone, place)
        cross join lateral (
          select a.id, a.available_at
          from mdm.aa_job a
          where a.status = 'pending'
            and a.tenant_id is not null
            and (a.tenant_id, a.job_kind, a.priority, a.available_at) >= (o.tenant_id, o.job_kind, o.priority, o.available_at)
            and (a.tenant_id, a.job_kind, a.priority, a.available_at) <= (o.tenant_id, o.job_kind, o.priority, p_now)
            and a.id <> all (p_taken)
          order by a.tenant_id, a.job_kind, a.priority, a.available_at, a.id
          limit p_limit) j) n
      order by n.available_at, n.id
      limit p_limit) m on m.place = l.place
    group by l.place
    order by l.place);
end
$$;

comment on function mdm._shares(mdm._lane[], int, bigint[], timestamptz) is
  'For each lane, how many of the next p_limit jobs of all of them stand in it. Private.';
