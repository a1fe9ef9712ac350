-- Puts a dead or stopped job back to pending (S9.2).
create or replace function mdm.replay_job(p_job_id bigint, p_reason text default null, p_actor_principal_id uuid default null)
returns text
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job mdm.aa_job := mdm._lock_for_admin(p_job_id, array['dlq', 'failed']::mdm.job_status[], 'replayed',
    'Only dlq and failed jobs are replayed; enqueue a new job to repeat a done one.');
  v_newest record;
begin
  v_newest := mdm._newest_of_key(v_job.tenant_id, v_job.job_kind, v_job.idempotency_key);
  if v_newest.o_key_no > v_job.key_no then
    perform mdm._raise('MJ004', format('job %s is superseded by %s', p_job_id, v_newest.o_id),
      format('superseded by %s', v_newest.o_id), 'The newer job of the same key does its work (D6); replay that one.');
  end if;

  perform mdm._replay_locked(v_job, p_reason, p_actor_principal_id);
  return 'replayed';
end
$$;

comment on function mdm.replay_job(bigint, text, uuid) is
  'Puts a dlq or failed job back to pending with attempts 0, due now, and returns replayed (S9.2). Audit job_replay. MJ002 no such job, MJ004 wrong state or superseded by a newer job of its key (D6).';
