-- Gives many jobs back at once: a throttled backlog, or what a stopping worker has not started (D4, D23).
create or replace function mdm.release_jobs(p_job_ids bigint[], p_lease_nos bigint[], p_retry_afters interval[] default null)
returns setof bigint
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_ids bigint[] := mdm._lock_leased_many(p_job_ids, p_lease_nos);
begin
  if cardinality(p_retry_afters) <> cardinality(p_job_ids) then
    perform mdm._raise('MJ005', format('%s job ids but %s delays', cardinality(p_job_ids), cardinality(p_retry_afters)), null,
      'Pass one delay for each job id, or NULL for none.');
  end if;
  perform mdm._release_locked(
    v_ids,
    array(
      select p_retry_afters[array_position(p_job_ids, l.id)]
      from unnest(v_ids) with ordinality l (id, place)
      order by l.place),
    null);
  return query
    select l.id
    from unnest(v_ids) l (id);
end
$$;

comment on function mdm.release_jobs(bigint[], bigint[], interval[]) is
  'release_job for many: returns the ids accepted; a job whose lease is gone is left out, never an error (D2). p_retry_afters: one per job, NULL = it keeps its place. MJ005 when the arrays differ in length.';
