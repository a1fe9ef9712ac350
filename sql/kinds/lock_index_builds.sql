-- One index at a time on a table: two concurrent builds wait for each other and deadlock (B100). A lock of the session, since the
-- builds run in autocommit; only tried, since waiting in a statement would hold a snapshot that the build waits for.
create or replace function mdm.lock_index_builds()
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_owner oid := (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.ddm_entity'::regclass);
begin
  if not pg_has_role(session_user, v_owner, 'usage') then
    perform mdm._raise('MJ007', format('%I may not build indexes on mdm.ddm_entity', session_user),
      format('The table belongs to %s.', v_owner::regrole),
      format('Run: grant mdm_indexer to %I; and where mdm_indexer does not inherit it: grant %s to mdm_indexer;',
        session_user, v_owner::regrole));
  end if;
  -- "mdmi" and the table
  return pg_try_advisory_lock(1835298153, 'mdm.ddm_entity'::regclass::oid::int);
end
$$;

comment on function mdm.lock_index_builds() is
  'Takes the lock of index builds on mdm.ddm_entity for this session; false when another session has it. Call it on the DDL connection '
  'and close that to let go. MJ007 when the login lacks the rights of the table''s owner (mdm_indexer).';
