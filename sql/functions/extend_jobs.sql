-- Heartbeat (D5). A row that another session holds (its own finish, a release) is not waited for: it counts as alive if what is
-- visible of it still carries the lease. Locks in the order of id, as finish_jobs does: both at once deadlocked otherwise.
-- The arrays are joined by hash: in nested loops 5,000 jobs took 3 s.
-- Rows are never waited for, the table is for 5 s at most, so that the call needs no transaction around it: a worker that computes in
-- all its threads has few moments to speak in.
create or replace function mdm.extend_jobs(p_job_ids bigint[], p_lease_nos bigint[])
returns table (job_id bigint, alive boolean)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '5s'
set jit = off
as $$
#variable_conflict use_column
begin
  if cardinality(p_job_ids) <> cardinality(p_lease_nos) then
    perform mdm._raise('MJ005', format('%s job ids but %s lease numbers', cardinality(p_job_ids), cardinality(p_lease_nos)), null,
      'Pass one lease number for each job id.');
  end if;

  with locked as materialized (
    select j.id, j.status, j.lease_no
    from mdm.aa_job j
    where j.id = any (p_job_ids)
    order by j.id
    for no key update skip locked)
  update mdm.aa_job j
  set heartbeat_at = clock_timestamp()
  where j.id = any (array(
    select l.id
    from locked l
    join unnest(p_job_ids, p_lease_nos) as g (id, lease_no) on g.id = l.id and g.lease_no = l.lease_no
    where l.status = 'running'));

  return query
    select g.id,
      coalesce((
        select j.status = 'running' and j.lease_no = g.lease_no
        from mdm.aa_job j
        where j.id = g.id), false)
    from unnest(p_job_ids, p_lease_nos) with ordinality as g (id, lease_no, place)
    order by g.place;
end
$$;

comment on function mdm.extend_jobs(bigint[], bigint[]) is
  'Heartbeat of running jobs, every third of the kind''s stale_ttl (D5). Gives a row per job: alive = false means that the lease is lost and the handler must stop. Never an error for a lost lease. 55P03 when the table is locked for more than 5 s. MJ005 when the arrays differ in length.';
