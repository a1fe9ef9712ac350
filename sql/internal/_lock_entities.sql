-- Locks the rows of a chunk without ever waiting, so that a reindex can neither block a writer through a wait of its own nor be part
-- of a deadlock. A row that somebody else holds ends the chunk before it.
create or replace function mdm._lock_entities(p_ids uuid[], out locked uuid[], out blocked_at uuid)
returns record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_until bigint;
begin
  locked := array(
    select e.id
    from mdm.ddm_entity e
    where e.id = any(p_ids)
    for no key update skip locked);
  -- the usual case: all of them
  if cardinality(locked) = cardinality(p_ids) then
    locked := p_ids;
    return;
  end if;
  -- not locked and still there = somebody holds it; not there = deleted meanwhile
  select w.ord, w.id
  into v_until, blocked_at
  from unnest(p_ids) with ordinality as w (id, ord)
  join mdm.ddm_entity e on e.id = w.id
  left join unnest(locked) as l (id) on l.id = w.id
  where l.id is null
  order by w.ord
  limit 1;
  locked := array(
    select w.id
    from unnest(p_ids) with ordinality as w (id, ord)
    join unnest(locked) as l (id) on l.id = w.id
    where w.ord < coalesce(v_until, w.ord + 1)
    order by w.ord);
end
$$;

comment on function mdm._lock_entities(uuid[]) is
  'Locks ddm_entity rows in the given order up to the first that another transaction holds (blocked_at); deleted ones are left out. Private.';
