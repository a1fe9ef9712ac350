-- The lanes of the best priority, the one with the oldest job first.
create or replace function mdm._first_level(p_lanes mdm._lane[])
returns mdm._lane[]
language plpgsql
immutable
parallel safe
security invoker
as $$
begin
  if cardinality(p_lanes) = 1 then
    return p_lanes;
  end if;
  return array(
    select l
    from unnest(p_lanes) l
    where l.priority = (select min(m.priority) from unnest(p_lanes) m)
    order by l.available_at);
end
$$;

comment on function mdm._first_level(mdm._lane[]) is 'The lanes of the smallest priority, oldest first job first. Private.';
