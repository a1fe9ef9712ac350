-- Deletes a job that is not running and not done (S9.3).
create or replace function mdm.discard_job(p_job_id bigint, p_reason text default null, p_actor_principal_id uuid default null)
returns text
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform mdm._lock_for_admin(p_job_id, array['pending', 'dlq', 'failed']::mdm.job_status[], 'discarded',
    'Stop a running job first: select mdm.stop_job(id); done jobs go with their retention.');
  perform mdm._delete_jobs(array[p_job_id], p_reason, p_actor_principal_id);
  return 'discarded';
end
$$;

comment on function mdm.discard_job(bigint, text, uuid) is
  'Deletes a pending, dlq or failed job for good and returns discarded; the audit row job_discard holds a snapshot of its payload (S9.3). A scan or import that it leaves pending, and a mail whose answer was lost, are failed in the same transaction. 55P03 somebody holds such a row, MJ002 no such job, MJ004 running or done.';
