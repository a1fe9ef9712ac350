-- Who writes to ddm_entity at this moment. The trigger of such a writer may have read the searchable attributes before a steward's
-- change was committed, and what it inserts is invisible until it commits: a reindex waits for it (as CREATE INDEX CONCURRENTLY does).
-- Chunks of other reindexes insert nothing; the shared advisory lock that they take (it stops nobody) tells them from the others.
create or replace function mdm._entity_writers()
returns text[]
language sql
volatile
parallel unsafe
security invoker
as $$
  select coalesce(array_agg(w.virtualtransaction), '{}')
  from (
    select l.virtualtransaction
    from pg_catalog.pg_locks l
    where l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      and l.pid is distinct from pg_backend_pid()
      and l.granted
    group by l.virtualtransaction
    having bool_or(l.relation = 'mdm.ddm_entity'::regclass and l.mode = 'RowExclusiveLock')
      and not bool_or(l.locktype = 'advisory' and l.classid = 1835298162 and l.objsubid = 2)
  ) w;
$$;

comment on function mdm._entity_writers() is
  'Other transactions that have written to ddm_entity and are still open, chunks of reindexes left out. Private.';
