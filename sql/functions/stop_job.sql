-- Marks a job as broken for good (S5.4). A running one loses its lease: its handler's writes will abort.
create or replace function mdm.stop_job(p_job_id bigint, p_reason text default null, p_actor_principal_id uuid default null)
returns text
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_job mdm.aa_job := mdm._lock_for_admin(p_job_id, array['pending', 'running', 'dlq']::mdm.job_status[], 'stopped',
    'It has ended already.');
begin
  update mdm.aa_job j
  set status = 'failed',
    completed_at = clock_timestamp(),
    last_error = coalesce(mdm._cut_bytes('stopped: ' || p_reason, 8192), j.last_error)
  where j.id = p_job_id;
  perform mdm._audit('job_stop', p_actor_principal_id, v_job.tenant_id, 'job', p_job_id::text,
    jsonb_build_object('job_kind', v_job.job_kind, 'status', v_job.status, 'last_error', v_job.last_error, 'reason', p_reason));
  return 'stopped';
end
$$;

comment on function mdm.stop_job(bigint, text, uuid) is
  'Moves a pending, running or dlq job to failed, tried no more until replayed, and returns stopped (S5.4). Waits for a finish under way. Audit job_stop. MJ002 no such job, MJ004 done or failed.';
