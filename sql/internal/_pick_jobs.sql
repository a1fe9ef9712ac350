-- Chooses and locks the jobs of a claim (D16): looks in which lanes the next ones stand, locks them there, and looks again until it has
-- enough or no lane is left. A lane that gives less than it was asked for has nothing left that is free; the next of its kind follows.
create or replace function mdm._pick_jobs(
  p_kinds text[],
  p_tenant_ids uuid[],
  p_limit int,
  p_floor jsonb,
  p_now timestamptz)
returns bigint[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_lanes mdm._lane[] := mdm._first_lanes(p_kinds, p_tenant_ids, p_floor, p_now);
  v_look record;
  v_got record;
  v_wanted int;
  v_share int;
  v_short boolean;
  v_open mdm._lane[];
  v_done mdm._lane[];
  v_alone boolean;
  v_ids bigint[] := array[]::bigint[];
begin
  -- one job of the only lane needs no look
  if p_limit = 1 and cardinality(v_lanes) = 1 then
    v_got := mdm._lock_lane(v_lanes[1], 1, v_ids, p_now);
    if not v_got.o_keyed and (v_lanes[1].floored or cardinality(v_got.o_ids) = 1) then
      return v_got.o_ids;
    end if;
  end if;

  while cardinality(v_lanes) > 0 loop
    v_wanted := p_limit - cardinality(v_ids);
    v_look := mdm._look(v_lanes, v_wanted, v_ids, p_now);
    -- a job that runs alone is taken by itself when it stands at the head, else the batch ends before it (D3)
    v_alone := v_look.o_alone;
    exit when v_alone and cardinality(v_ids) > 0;

    v_open := array[]::mdm._lane[];
    v_done := array[]::mdm._lane[];
    for i in 1 .. cardinality(v_lanes) loop
      v_share := cardinality(array_positions(v_look.o_places, i));
      v_short := v_lanes[i].priority = v_look.o_priority and not v_look.o_alone and cardinality(v_look.o_places) < v_wanted;
      if v_share > 0 then
        v_got := mdm._lock_lane(v_lanes[i], v_share, v_ids, p_now);
        v_short := v_short or cardinality(v_got.o_ids) < v_share;
        v_alone := v_alone or v_got.o_alone;
        v_ids := v_ids || v_got.o_ids;
        if v_got.o_keyed then
          v_ids := array(select u.id from unnest(v_ids) u (id) where u.id not in (select mdm._retire_superseded(v_got.o_ids, null)));
        end if;
      end if;
      if not v_short then
        v_open := v_open || v_lanes[i];
      elsif not v_lanes[i].floored then
        v_done := v_done || v_lanes[i];
      end if;
    end loop;
    exit when cardinality(v_ids) >= case when v_alone then 1 else p_limit end;
    v_lanes := v_open;
    if cardinality(v_done) > 0 then
      v_lanes := v_lanes || mdm._next_lanes(v_done, p_now);
    end if;
  end loop;
  return case when v_alone and cardinality(v_ids) > 1 then mdm._cut_before_alone(v_ids) else v_ids end;
end
$$;

comment on function mdm._pick_jobs(text[], uuid[], int, jsonb, timestamptz) is 'The ids, locked, of the jobs that a claim takes (D16). Private.';
