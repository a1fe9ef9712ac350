-- What recovery does to locked stale jobs (S8.1, D3). A crash charges only who was alone in it: a job that went silent together with
-- others gets its attempt back and runs alone from then on; a job that was alone and has used up its attempts is dead. A job that runs
-- alone and nevertheless always has company, because it kills late, is spared five times.
create or replace function mdm._recover_locked(p_job_ids bigint[], out o_job_id bigint, out o_outcome text)
returns setof record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  c_spared constant int := 5;
  v_now timestamptz := clock_timestamp();
  v_retired bigint[];
begin
  perform mdm._mark_together(p_job_ids);
  v_retired := array(select r.id from mdm._retire_superseded(p_job_ids, null) r (id));
  update mdm.aa_job j
  set lease_no = null,
    recoveries = least(j.recoveries, 2147483646) + 1
  where j.id = any (v_retired);

  return query
    with stale as materialized (
      select j.id, c.spared, not c.spared and j.attempts >= j.max_attempts as dead
      from mdm.aa_job j
      cross join lateral (
        select j.claimed_together > 1 and not (j.run_alone and j.recoveries >= c_spared) as spared) c
      where j.id = any (p_job_ids)
        and j.id <> all (v_retired)),
    recovered as (
      update mdm.aa_job j
      set status = case when s.dead then 'dlq' else 'pending' end::mdm.job_status,
        attempts = case when s.spared then greatest(j.attempts - 1, 0) else j.attempts end,
        run_alone = j.run_alone or s.spared,
        recoveries = least(j.recoveries, 2147483646) + 1,
        lease_no = null,
        last_error = mdm._recovery_note(
          -- no error but notes of earlier recoveries: whoever finds it dead needs a reason
          case
            when s.dead and coalesce(j.last_error, '') ~ '^([[]stale-claim recovered[]]( x[0-9]+)?)?$'
              then concat_ws(' ', 'no sign of life from ' || j.claimed_by, nullif(j.last_error, ''))
            else j.last_error
          end),
        claimed_by = case when s.dead then j.claimed_by end,
        claimed_at = case when s.dead then j.claimed_at end,
        heartbeat_at = case when s.dead then j.heartbeat_at end,
        completed_at = case when s.dead then v_now end
      from stale s
      where j.id = s.id
      returning j.id, j.status, j.tenant_id, j.job_kind, j.last_error, j.attempts),
    audit as (
      insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
      select v_now, 'job_dlq', mdm._actor(null), session_user, r.tenant_id, 'job', r.id::text,
        jsonb_build_object('job_kind', r.job_kind, 'last_error', r.last_error, 'attempts', r.attempts)
      from recovered r
      where r.status = 'dlq')
    select r.id, r.status::text
    from recovered r
    union all
    select t.id, 'done'
    from unnest(v_retired) t (id);
end
$$;

comment on function mdm._recover_locked(bigint[]) is 'Recovers locked stale jobs; outcome pending, dlq or done (S8, D3, D6). Private.';
