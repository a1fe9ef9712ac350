-- How many due jobs of the same kind go before this one, counted to 1,000.
create or replace function mdm._jobs_ahead(p_job mdm.aa_job, p_now timestamptz)
returns int
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  return (
    select count(*)::int
    from (
      select
      from mdm.aa_job j
      where j.status = 'pending'
        and j.job_kind = p_job.job_kind
        and (j.priority, j.available_at, j.id) < (p_job.priority, p_job.available_at, p_job.id)
        and j.available_at <= p_now
      order by j.priority, j.available_at, j.id
      limit 1000) a);
end
$$;

comment on function mdm._jobs_ahead(mdm.aa_job, timestamptz) is 'Due jobs of the same kind before this one, at most 1,000. Private.';
