-- Chooses and locks the jobs of a claim (D16), priority by priority over all lanes, smallest first.
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
  v_limit int := p_limit;
  v_lanes mdm._lane[] := mdm._first_lanes(p_kinds, p_tenant_ids, p_floor, p_now);
  v_level mdm._lane[];
  v_picked mdm._picked;
  v_retired bigint[];
  v_ids bigint[] := array[]::bigint[];
  v_alone boolean := false;
begin
  while cardinality(v_lanes) > 0 loop
    v_level := mdm._first_level(v_lanes);
    -- a job that runs alone is taken by itself when it stands at the head, else the batch ends before it (D3)
    if v_level[1].run_alone then
      exit when cardinality(v_ids) > 0;
      v_limit := 1;
    end if;

    v_picked := mdm._lock_level(v_level, v_limit - cardinality(v_ids), v_ids, p_now);
    if v_picked.keyed then
      v_retired := array(select r.id from mdm._retire_superseded(v_picked.ids, null) r (id));
      v_ids := v_ids || array(select p.id from unnest(v_picked.ids) p (id) where p.id <> all (v_retired));
      -- they left room in this level: look again, also when the job that runs alone was among them
      continue when cardinality(v_retired) > 0 and (not v_picked.alone or cardinality(v_ids) = 0);
    else
      v_ids := v_ids || v_picked.ids;
    end if;

    v_alone := v_picked.alone;
    exit when v_alone or cardinality(v_ids) >= v_limit;
    v_lanes := mdm._next_lanes(v_lanes, v_level[1].priority, p_floor, p_now);
  end loop;
  return case when v_alone then mdm._cut_before_alone(v_ids) else v_ids end;
end
$$;

comment on function mdm._pick_jobs(text[], uuid[], int, jsonb, timestamptz) is 'The ids, locked, of the jobs that a claim takes (D16). Private.';
