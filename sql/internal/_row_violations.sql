-- The rules about single rows, for jobs of a range of ids; NULL = no bound. Each row is reached by its key, so that a short range costs
-- as little in a large table as in a small one; the bounds are variables, since a COALESCE is no index condition under row-level security.
create or replace function mdm._row_violations(p_from bigint, p_to bigint)
returns table (name text, job_id bigint)
language plpgsql
stable
parallel safe
security invoker
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
set max_parallel_workers_per_gather = 0
as $$
declare
  v_from bigint := coalesce(p_from, -9223372036854775808);
  v_to bigint := coalesce(p_to, 9223372036854775807);
begin
  return query
    select unnest(array_remove(array[
      case when j.status = 'running' and (j.lease_no is null or j.claimed_by is null or j.claimed_at is null)
        then 'running_without_lease' end,
      case when j.status = 'pending' and (j.claimed_by is not null or j.claimed_at is not null or j.heartbeat_at is not null)
        then 'pending_but_claimed' end,
      case when (j.completed_at is not null) <> (j.status in ('done', 'dlq', 'failed'))
        then 'completed_at_wrong' end,
      -- a pending job has an attempt before it (S5.3)
      case when j.status = 'pending' and j.attempts >= j.max_attempts and j.recoveries = 0
        then 'pending_without_attempts_left' end,
      case when j.attempts > j.max_attempts and j.recoveries = 0
        then 'more_attempts_than_allowed' end,
      case when k.job_kind is null
        then 'unregistered_kind' end], null)), j.id
    from mdm.aa_job j
    left join mdm.aa_job_kind k on k.job_kind = j.job_kind
    where j.id between v_from and v_to;
end
$$;

comment on function mdm._row_violations(bigint, bigint) is 'What breaks a rule about single rows, among the jobs of a range of ids. Private.';
