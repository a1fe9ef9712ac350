-- Installs or upgrades everything with psql alone: psql -v ON_ERROR_STOP=1 -f sql/install.sql
\set ON_ERROR_STOP on
set client_min_messages = warning;
-- one installer of a database at a time, `jobrunner migrate` among them; the second waits
do $$ begin perform pg_advisory_lock(x'6d646d6a6f6273'::bigint); end $$;
\ir once.sql
\ir always.sql
do $$ begin perform pg_advisory_unlock(x'6d646d6a6f6273'::bigint); end $$;
