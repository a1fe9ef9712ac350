-- Replays many dead jobs (S9.2): by filter, with a dry run unless told otherwise, each with an outcome of its own.
create or replace function mdm.replay_jobs(
  p_filter jsonb,
  p_limit int default 1000,
  p_dry_run boolean default true,
  p_reason text default null,
  p_actor_principal_id uuid default null)
returns table (job_id bigint, outcome text)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job mdm.aa_job;
  v_newest record;
begin
  for v_job in select j.* from mdm._lock_dead(p_filter, coalesce(p_limit, 1000)) j loop
    v_newest := mdm._newest_of_key(v_job.tenant_id, v_job.job_kind, v_job.idempotency_key);
    job_id := v_job.id;
    if v_newest.o_key_no > v_job.key_no then
      outcome := 'superseded';
    elsif coalesce(p_dry_run, true) then
      outcome := 'would_replay';
    else
      perform mdm._replay_locked(v_job, p_reason, p_actor_principal_id);
      outcome := 'replayed';
    end if;
    return next;
  end loop;
end
$$;

comment on function mdm.replay_jobs(jsonb, int, boolean, text, uuid) is
  'Replays up to p_limit (1 .. 10,000) dlq jobs that p_filter names: job_kind, tenant_id (null = platform jobs), completed_after, completed_before, last_error (contains), all. Dry run unless p_dry_run is false. Gives an outcome per job: replayed, would_replay, superseded (a newer job of its key exists, D6). Jobs that another session holds are left out. MJ005 bad filter, MJ006 empty filter without {"all": true}.';
