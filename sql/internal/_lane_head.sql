-- The first due job of a lane at or after a time, without a lock. Row comparisons: see _lane_after.
create or replace function mdm._lane_head(
  p_job_kind text,
  p_tenant_id uuid,
  p_priority int,
  p_from timestamptz,
  p_now timestamptz)
returns mdm._lane
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_lane mdm._lane;
begin
  if p_tenant_id is null then
    select p_job_kind, null::uuid, p_priority, j.available_at, j.run_alone
    into v_lane
    from mdm.aa_job j
    where j.status = 'pending'
      and j.job_kind = p_job_kind
      and j.priority = p_priority
      and j.available_at between p_from and p_now
    order by j.available_at, j.id
    limit 1;
  else
    select p_job_kind, p_tenant_id, p_priority, j.available_at, j.run_alone
    into v_lane
    from mdm.aa_job j
    where j.status = 'pending'
      and j.tenant_id is not null
      and (j.tenant_id, j.job_kind, j.priority, j.available_at) >= (p_tenant_id, p_job_kind, p_priority, p_from)
      and (j.tenant_id, j.job_kind, j.priority, j.available_at) <= (p_tenant_id, p_job_kind, p_priority, p_now)
    order by j.tenant_id, j.job_kind, j.priority, j.available_at, j.id
    limit 1;
  end if;
  return v_lane;
end
$$;

comment on function mdm._lane_head(text, uuid, int, timestamptz, timestamptz) is
  'The lane with its first job due between two times, NULLs when there is none. Private.';
