-- Who writes to ddm_entity at this moment. The trigger of such a writer may have read the searchable attributes before a steward's
-- change was committed, and what it inserts is invisible until it commits: a reindex waits for it (as CREATE INDEX CONCURRENTLY does).
create or replace function mdm._entity_writers()
returns text[]
language sql
volatile
parallel unsafe
security invoker
as $$
  select coalesce(array_agg(distinct l.virtualtransaction), '{}')
  from pg_catalog.pg_locks l
  where l.relation = 'mdm.ddm_entity'::regclass
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
    and l.mode = 'RowExclusiveLock'
    and l.granted
    and l.pid is distinct from pg_backend_pid();
$$;

comment on function mdm._entity_writers() is 'Other transactions that have written to ddm_entity and are still open. Private.';
