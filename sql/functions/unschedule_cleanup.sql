-- Takes the upkeep off pg_cron; the runners go on with it (D17).
create or replace function mdm.unschedule_cleanup()
returns int
language plpgsql
volatile
parallel unsafe
security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  perform mdm._check_cron();
  execute 'select count(cron.unschedule(j.jobid)) from cron.job j where j.username = current_user and j.jobname = any ($1)'
  into v_count
  using array(select e.job_name from mdm._cron_entries() e);
  return v_count;
end
$$;

comment on function mdm.unschedule_cleanup() is
  'Removes what schedule_cleanup scheduled for the calling role and returns how many entries that were. MJ007 as schedule_cleanup.';
