-- Locks the next jobs of the lanes of one priority, merged by available_at and id (D16). With several lanes a look without locks says
-- how many of each come next, then that many are locked in each: locking the full number in every lane would hide them from everybody
-- else. A lane that comes up short has nothing left that is free; the others are looked at again without it.
create or replace function mdm._lock_level(p_lanes mdm._lane[], p_limit int, p_taken bigint[], p_now timestamptz)
returns mdm._picked
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_lanes mdm._lane[] := p_lanes;
  v_open mdm._lane[];
  v_shares int[];
  v_got mdm._picked;
  v_picked mdm._picked := ('{}', false, false);
begin
  loop
    if cardinality(v_lanes) = 1 then
      v_shares := array[p_limit - cardinality(v_picked.ids)];
    else
      v_shares := mdm._shares(v_lanes, p_limit - cardinality(v_picked.ids), p_taken || v_picked.ids, p_now);
    end if;
    v_open := '{}';
    for i in 1 .. cardinality(v_lanes) loop
      if v_shares[i] > 0 then
        v_got := mdm._lock_lane(v_lanes[i], v_shares[i], p_taken || v_picked.ids, p_now);
        v_picked := (v_picked.ids || v_got.ids, v_picked.alone or v_got.alone, v_picked.keyed or v_got.keyed);
        continue when cardinality(v_got.ids) < v_shares[i];
      end if;
      v_open := v_open || v_lanes[i];
    end loop;
    exit when cardinality(v_picked.ids) >= p_limit or cardinality(v_open) = 0 or cardinality(v_open) = cardinality(v_lanes);
    v_lanes := v_open;
  end loop;
  return v_picked;
end
$$;

comment on function mdm._lock_level(mdm._lane[], int, bigint[], timestamptz) is
  'Locks up to p_limit due jobs of lanes of one priority, except p_taken (D16). Private.';
