-- Locks the next jobs of one lane, passing over those that others hold (S4.2) and those that this claim has already.
-- Row comparisons: see _next_lanes.
create or replace function mdm._lock_lane(
  p_lane mdm._lane,
  p_limit int,
  p_taken bigint[],
  p_now timestamptz,
  out o_ids bigint[],
  out o_alone boolean,
  out o_keyed boolean)
returns record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  if p_lane.tenant_id is null then
    select coalesce(array_agg(l.id), '{}'), coalesce(bool_or(l.run_alone), false), coalesce(bool_or(l.keyed), false)
    into o_ids, o_alone, o_keyed
    from (
      select j.id, j.run_alone, j.idempotency_key is not null as keyed
      from mdm.aa_job j
      where j.status = 'pending'
        and j.job_kind = p_lane.job_kind
        and j.priority = p_lane.priority
        and j.available_at between p_lane.available_at and p_now
        and j.id <> all (p_taken)
      order by j.available_at, j.id
      limit p_limit
      for update skip locked) l;
  else
    select coalesce(array_agg(l.id), '{}'), coalesce(bool_or(l.run_alone), false), coalesce(bool_or(l.keyed), false)
    into o_ids, o_alone, o_keyed
    from (
      select j.id, j.run_alone, j.idempotency_key is not null as keyed
      from mdm.aa_job j
      where j.status = 'pending'
        and j.tenant_id is not null
        and (j.tenant_id, j.job_kind, j.priority, j.available_at)
          >= (p_lane.tenant_id, p_lane.job_kind, p_lane.priority, p_lane.available_at)
        and (j.tenant_id, j.job_kind, j.priority, j.available_at) <= (p_lane.tenant_id, p_lane.job_kind, p_lane.priority, p_now)
        and j.id <> all (p_taken)
      order by j.tenant_id, j.job_kind, j.priority, j.available_at, j.id
      limit p_limit
      for update skip locked) l;
  end if;
end
$$;

comment on function mdm._lock_lane(mdm._lane, int, bigint[], timestamptz) is
  'Locks up to p_limit due jobs of a lane with skip locked, except p_taken: their ids, whether one runs alone (D3), whether one has a key (D6). Private.';
