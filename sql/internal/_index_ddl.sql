-- The next DDL that brings an index to what is wanted (S2.7, S2.8): the drift check before a build. What is there counts only when
-- it is valid and defined as wanted (B99); an index in the way is dropped first. Runs under the lock of mdm.lock_index_builds, so
-- that an invalid index is the leftover of a build that failed, and nobody's build in progress.
create or replace function mdm._index_ddl(p_index_name text, p_definition text)
returns table (statement text, is_build boolean)
language plpgsql
stable
parallel safe
security invoker
-- pg_get_indexdef prints names and strings as these say
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
set quote_all_identifiers = off
as $$
declare
  v_fits boolean;
  v_is_there boolean;
begin
  select pg_catalog.pg_get_indexdef(i.indexrelid) = p_definition and i.indisvalid and i.indisready
  into v_fits
  from pg_catalog.pg_index i
  join pg_catalog.pg_class c on c.oid = i.indexrelid
  where c.relnamespace = 'mdm'::regnamespace
    and c.relname = p_index_name
    and i.indrelid = 'mdm.ddm_entity'::regclass;
  v_is_there := found;
  if v_fits or (not v_is_there and p_definition is null) then
    return;
  elsif v_is_there then
    return query values (format('drop index concurrently if exists mdm.%I', p_index_name), false);
    return;
  end if;
  -- without statistics of the expression the planner would guess
  return query values
    (regexp_replace(p_definition, '^CREATE INDEX ', 'create index concurrently '), true),
    ('analyze mdm.ddm_entity', false);
end
$$;

comment on function mdm._index_ddl(text, text) is
  'The statements to run next so that the index of this name is as p_definition says (NULL = gone); no row = it is. Private.';
