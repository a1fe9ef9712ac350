-- Whether the calling role can have pg_cron drive the upkeep of this database; MJ007 says what is in the way.
create or replace function mdm._check_cron()
returns void
language plpgsql
volatile
parallel unsafe
security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pg_catalog.pg_extension e where e.extname = 'pg_cron') then
    perform mdm._raise('MJ007', format('pg_cron is not installed in database %s', current_database()),
      'The extension lives in one database of a server, the one that cron.database_name says.',
      'Without it every runner does the upkeep by itself (D17); with it: create extension pg_cron.');
  end if;
  if not has_schema_privilege(current_user, 'cron', 'usage') then
    perform mdm._raise('MJ007', format('role %s may not use schema cron', current_user), null, format('grant usage on schema cron to %I;', current_user));
  end if;
  if not (select r.rolcanlogin from pg_catalog.pg_roles r where r.rolname = current_user) then
    perform mdm._raise('MJ007', format('role %s cannot log in', current_user), 'pg_cron runs a job as the role that scheduled it.',
      'Call it as a login role that is a member of mdm_admin.');
  end if;
  if not pg_has_role(current_user, 'mdm_admin', 'usage') then
    perform mdm._raise('MJ007', format('role %s is not a member of mdm_admin', current_user), 'It could not do the upkeep.',
      format('grant mdm_admin to %I;', current_user));
  end if;
end
$$;

comment on function mdm._check_cron() is 'MJ007 unless pg_cron is here and the role may use it for the upkeep. Called by invoker functions, so their callers may call it.';
