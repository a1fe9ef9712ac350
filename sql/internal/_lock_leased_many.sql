-- Locks, in the order of id, those of the jobs that are running under the lease given for them; the others are passed over (D2).
create or replace function mdm._lock_leased_many(p_job_ids bigint[], p_lease_nos bigint[])
returns bigint[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_ids bigint[];
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
    for no key update)
  select coalesce(array_agg(distinct l.id), '{}')
  into v_ids
  from locked l
  join unnest(p_job_ids, p_lease_nos) as g (id, lease_no) on g.id = l.id and g.lease_no = l.lease_no
  where l.status = 'running';
  return v_ids;
end
$$;

comment on function mdm._lock_leased_many(bigint[], bigint[]) is 'The ids, locked, of those jobs that are running under the lease given (D2). Private.';
