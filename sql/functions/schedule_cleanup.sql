-- Lets pg_cron drive the upkeep (S13.4, D17). Invoker: pg_cron runs a job as the role that scheduled it. The statements are built at run
-- time, since the extension may be absent.
create or replace function mdm.schedule_cleanup()
returns table (job_name text, schedule text, command text)
language plpgsql
volatile
parallel unsafe
security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_entry record;
begin
  perform mdm._check_cron();
  for v_entry in
    select e.job_name, e.schedule, e.command
    from mdm._cron_entries() e
  loop
    execute 'select cron.schedule($1, $2, $3)' using v_entry.job_name, v_entry.schedule, v_entry.command;
    return query select v_entry.job_name, v_entry.schedule, v_entry.command;
  end loop;
end
$$;

comment on function mdm.schedule_cleanup() is
  'Schedules recovery each minute, the cleanup each five, and the trimming of cron.job_run_details each day with pg_cron, as the calling role; calling it again changes nothing (S13.4, D17). MJ007 when pg_cron is not in this database, or the role cannot log in or is not a member of mdm_admin.';
