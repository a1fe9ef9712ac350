-- What jobs were to work on must not stay under way when they are deleted: nobody would find it afterwards.
create or replace function mdm._abandon_work(p_job_ids bigint[])
returns void
language plpgsql
volatile
parallel unsafe
security invoker
-- below deadlock_timeout: an upload that is set to pending again waits for its job, which the caller holds
set lock_timeout = '500ms'
as $$
begin
  perform mdm._abandon_scans(p_job_ids, false);
  perform mdm._abandon_imports(p_job_ids, false);
  perform mdm._abandon_emails(p_job_ids, false);
end
$$;

comment on function mdm._abandon_work(bigint[]) is
  'Ends what these pending or dead jobs leave behind: scans, imports and mails under way. 55P03 somebody holds such a row. Private.';
