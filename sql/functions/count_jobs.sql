-- How many jobs of a kind stand where. A function because its plans have to be pinned: under row-level security the planner takes
-- half of the table for every status, and would read it whole for each kind.
create or replace function mdm.count_jobs(p_job_kind text, p_place text)
returns bigint
language plpgsql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();  -- an index can be asked for a value, not for a volatile function
  v_count bigint;
begin
  case p_place
    when 'due' then
      v_count := (select count(*) from mdm.aa_job j where j.status = 'pending' and j.job_kind = p_job_kind and j.available_at <= v_now);
    when 'later' then
      v_count := (select count(*) from mdm.aa_job j where j.status = 'pending' and j.job_kind = p_job_kind and j.available_at > v_now);
    when 'running' then
      v_count := (select count(*) from mdm.aa_job j where j.status = 'running' and j.job_kind = p_job_kind);
    when 'done' then
      v_count := (select count(*) from mdm.aa_job j where j.status = 'done' and j.job_kind = p_job_kind);
    when 'failed' then
      v_count := (select count(*) from mdm.aa_job j where j.status in ('dlq', 'failed') and j.status = 'failed' and j.job_kind = p_job_kind);
    when 'dlq' then
      v_count := (select count(*) from mdm.aa_job j where j.status in ('dlq', 'failed') and j.status = 'dlq' and j.job_kind = p_job_kind);
    when 'restless' then
      v_count := (select count(*) from mdm.aa_job j where j.status = 'pending' and j.job_kind = p_job_kind and j.releases > 10);
    else
      perform mdm._raise('MJ005', format('unknown place %s', coalesce(quote_literal(p_place), 'NULL')), null,
        'The places are due, later, running, done, failed, dlq, restless.');
  end case;
  return v_count;
end
$$;

comment on function mdm.count_jobs(text, text) is
  'How many jobs of a kind are due, later, running, done, failed, dlq, or restless (pending, given back more than ten times); the views v_job_counts and v_job_health call it. MJ005 another place.';
