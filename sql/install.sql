-- Installs or upgrades everything with psql alone: psql -v ON_ERROR_STOP=1 -f sql/install.sql
\set ON_ERROR_STOP on
set client_min_messages = warning;
-- one installer of a database at a time, `jobrunner migrate` among them; the second waits
do $$ begin perform pg_advisory_lock(x'6d646d6a6f6273'::bigint); end $$;
-- a newer schema is not taken back; the number is that of functions/job_schema_version.sql
do $$
declare
  v_version int;
begin
  if to_regprocedure('mdm.job_schema_version()') is not null then
    v_version := mdm.job_schema_version();
    if v_version > 1 then
      raise exception 'schema mdm is version %, newer than this one, which is 1', v_version
        using errcode = 'object_not_in_prerequisite_state',
          hint = 'Install with the newer release of mdm jobs.';
    end if;
  end if;
end
$$;
\ir once.sql
\ir always.sql
do $$ begin perform pg_advisory_unlock(x'6d646d6a6f6273'::bigint); end $$;
