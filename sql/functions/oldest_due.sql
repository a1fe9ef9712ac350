-- Since when the oldest pending job of a kind is available: the first of each of its lanes, found by one probe a priority.
create or replace function mdm.oldest_due(p_job_kind text)
returns timestamptz
language plpgsql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_priority int;
  v_oldest timestamptz;
begin
  select min(j.priority) into v_priority from mdm.aa_job j where j.status = 'pending' and j.job_kind = p_job_kind;
  while v_priority is not null loop
    v_oldest := least(v_oldest, (
      select min(j.available_at)
      from mdm.aa_job j
      where j.status = 'pending'
        and j.job_kind = p_job_kind
        and j.priority = v_priority));
    select min(j.priority)
    into v_priority
    from mdm.aa_job j
    where j.status = 'pending'
      and j.job_kind = p_job_kind
      and j.priority > v_priority;
  end loop;
  return v_oldest;
end
$$;

comment on function mdm.oldest_due(text) is
  'available_at of the pending job of a kind that comes first by time, also when it is not due yet; NULL = none is pending.';
