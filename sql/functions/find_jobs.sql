-- The ids of the jobs in a state that few are in. The views of running and dead jobs begin here, for the reason of count_jobs: under
-- row-level security the planner takes half of the table for every status, and would read it whole.
create or replace function mdm.find_jobs(p_status mdm.job_status)
returns setof bigint
language plpgsql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set max_parallel_workers_per_gather = 0
as $$
begin
  case p_status
    when 'running' then
      return query select j.id from mdm.aa_job j where j.status = 'running';
    when 'dlq' then
      return query select j.id from mdm.aa_job j where j.status in ('dlq', 'failed') and j.status = 'dlq';
    else
      perform mdm._raise('MJ005', format('jobs that are %s are not found here', coalesce(p_status::text, 'NULL')), null,
        'The states are running and dlq.');
  end case;
end
$$;

comment on function mdm.find_jobs(mdm.job_status) is
  'Ids of the jobs that are running or dlq, in no order; the views v_job_running and v_job_dlq call it. MJ005 another state.';
