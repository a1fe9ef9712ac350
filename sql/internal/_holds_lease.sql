-- Whether a job runs under a lease: what it has taken is its own for so long, and free again when it ended or was recovered.
-- A login that is bound to tenants does not see the jobs of others, and must not take their leases for gone.
-- Not "status = 'running'": that would lure the planner into the partial index over all running rows (design 5).
create or replace function mdm._holds_lease(p_job_id bigint, p_lease_no bigint)
returns boolean
language sql
stable
parallel safe
security invoker
as $$
  select exists (
    select
    from mdm.aa_job j
    where j.id = p_job_id
      and j.lease_no = p_lease_no
      and j.claimed_at is not null
      and j.completed_at is null)
    or (p_job_id is not null
      and mdm._bound_tenants() is not null
      and not exists (select from mdm.aa_job j where j.id = p_job_id));
$$;

comment on function mdm._holds_lease(bigint, bigint) is 'Whether the job runs under this lease, or may do so as one that the login does not see; false for NULL. Private.';
