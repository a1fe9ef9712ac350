-- Replaces the lanes of a priority that has been taken by the next ones of their kind (and tenant).
create or replace function mdm._next_lanes(p_lanes mdm._lane[], p_priority int, p_floor jsonb, p_now timestamptz)
returns mdm._lane[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_lane mdm._lane;
  v_lanes mdm._lane[] := array[]::mdm._lane[];
begin
  foreach v_lane in array p_lanes loop
    if v_lane.priority = p_priority then
      v_lane := mdm._lane_after(v_lane.job_kind, v_lane.tenant_id, p_priority, p_floor -> v_lane.job_kind, p_now);
    end if;
    if v_lane.priority is not null then
      v_lanes := v_lanes || v_lane;
    end if;
  end loop;
  return v_lanes;
end
$$;

comment on function mdm._next_lanes(mdm._lane[], int, jsonb, timestamptz) is 'The lanes with those of p_priority replaced by their successors. Private.';
