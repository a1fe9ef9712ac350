-- Upkeep of the email log (S2.1): a job that is dead, and whose last run never said what the provider answered, leaves "sending" behind.
-- Driven by the dead jobs: those are few, mails are many.
create or replace function mdm.settle_emails()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return mdm._abandon_emails(mdm._dead_jobs('email_send'), true);
end
$$;

comment on function mdm.settle_emails() is
  'Sets rows of the email log from sending to failed ("it may have been sent") where the job that was sending has died, and returns how many. '
  'Part of mdm.cleanup_jobs. Replaying the job sends once more, unless two answers were lost.';
