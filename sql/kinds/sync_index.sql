-- The database half of index_sync and gin_backfill (S2.7, S2.8): looks, says what DDL is due next, and writes where the index stands.
-- The DDL itself cannot run in a function (25001): the caller runs it on a connection of its own, in autocommit, and asks again.
create or replace function mdm.sync_index(p_job_id bigint, p_lease_no bigint)
returns table (statement text, is_build boolean)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
-- a steward's open transaction may hold the row whose status is written: do not wait for him for long
set lock_timeout = '2s'
as $$
declare
  v_job record;
begin
  v_job := mdm._index_job(p_job_id, p_lease_no);
  return query select d.statement, d.is_build from mdm._index_ddl(v_job.index_name, v_job.definition) d;
  if not found then
    perform mdm._set_index_status(v_job.job_kind, v_job.entity_type_id, v_job.key,
      case when v_job.definition is null then 'none' else 'active' end::mdm.index_status, null);
  elsif v_job.definition is not null then
    perform mdm._set_index_status(v_job.job_kind, v_job.entity_type_id, v_job.key, 'building', null);
  end if;
end
$$;

comment on function mdm.sync_index(bigint, bigint) is
  'What a claimed index_sync or gin_backfill has to run next, in order, each alone and in autocommit: drop index concurrently of what is '
  'invalid, other than wanted or not wanted any more; or create index concurrently (is_build) and analyze. Sets index_status building. '
  'No row: all is as wanted, index_status is set to active or none, finish the job in this transaction (S5.1). Call it under '
  'mdm.lock_index_builds, again after every statement. MJ001 lease lost, MJ005 bad payload, 55P03 a steward holds the row.';
