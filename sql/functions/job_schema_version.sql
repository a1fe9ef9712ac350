-- Which schema this is; a runner refuses to work on another one than its own.
create or replace function mdm.job_schema_version()
returns int
language sql
immutable
parallel safe
security invoker
set search_path = pg_catalog, pg_temp
as $$
  select 1;
$$;

comment on function mdm.job_schema_version() is 'Version of the schema; raised by every change that a runner must know of.';
