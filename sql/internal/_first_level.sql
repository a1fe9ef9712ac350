-- The lanes of the best priority, the one with the oldest job first.
create or replace function mdm._first_level(p_lanes mdm._lane[])
returns mdm._lane[]
language sql
immutable
parallel safe
security invoker
as $$
  select case
    when cardinality(p_lanes) = 1 then p_lanes
    else (
      select array_agg(l.* order by l.available_at)
      from unnest(p_lanes) l
      where l.priority = (select min(m.priority) from unnest(p_lanes) m))
  end;
$$;

comment on function mdm._first_level(mdm._lane[]) is 'The lanes of the smallest priority, oldest first job first. Private.';
