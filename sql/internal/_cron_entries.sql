-- What pg_cron is to run: single statements, since a command of several runs in one transaction.
create or replace function mdm._cron_entries()
returns table (job_name text, schedule text, command text)
language plpgsql
immutable
parallel safe
security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select e.job_name, e.schedule, e.command
    from (values
      ('mdm_recover', '* * * * *', 'select count(*) from mdm.recover_stale_jobs()'),
      ('mdm_cleanup', '*/5 * * * *', 'call mdm.cleanup_jobs()'),
      ('mdm_trim_cron', '23 3 * * *', 'delete from cron.job_run_details where end_time < now() - interval ''168 hours''')
    ) e (job_name, schedule, command);
end
$$;

comment on function mdm._cron_entries() is 'The entries of schedule_cleanup. Called by invoker functions, so their callers may call it.';
