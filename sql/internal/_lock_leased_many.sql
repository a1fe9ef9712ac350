-- Locks, in the order of id, those of the jobs that are running under the lease given for them; the others are passed over (D2). A
-- lease that is lost never comes back, so what is not under it at a first look is not locked at all: a late worker neither waits for a
-- producer who is changing its pending job nor deadlocks with one (enqueue_jobs goes by key). Hash joins: in nested loops over the
-- arrays 5,000 jobs took 3 s.
create or replace function mdm._lock_leased_many(p_job_ids bigint[], p_lease_nos bigint[])
returns bigint[]
language plpgsql
volatile
parallel unsafe
security invoker
set enable_nestloop = off
set enable_hashjoin = on
set jit = off
as $$
declare
  v_ids bigint[];
begin
  if cardinality(p_job_ids) <> cardinality(p_lease_nos) then
    perform mdm._raise('MJ005', format('%s job ids but %s lease numbers', cardinality(p_job_ids), cardinality(p_lease_nos)), null,
      'Pass one lease number for each job id.');
  end if;
  with seen as materialized (
    select j.id, j.status, j.lease_no
    from mdm.aa_job j
    where j.id = any (p_job_ids)),
  locked as materialized (
    select j.id, j.status, j.lease_no
    from mdm.aa_job j
    where j.id = any (array(
      select s.id
      from seen s
      join unnest(p_job_ids, p_lease_nos) as g (id, lease_no) on g.id = s.id and g.lease_no = s.lease_no
      where s.status = 'running'))
    order by j.id
    for no key update)
  select coalesce(array_agg(l.id order by l.id), '{}')
  into v_ids
  from locked l
  join seen s on s.id = l.id and s.lease_no = l.lease_no
  where l.status = 'running';
  return v_ids;
end
$$;

comment on function mdm._lock_leased_many(bigint[], bigint[]) is 'The ids, locked, of those jobs that are running under the lease given (D2). Private.';
