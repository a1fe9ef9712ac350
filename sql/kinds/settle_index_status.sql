-- Upkeep of index_status (S2.7): a job that died without a word (its runner was killed with the last attempt, it was stopped or
-- discarded) leaves "building" behind, which nobody builds any more.
create or replace function mdm.settle_index_status()
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attributes int;
  v_types int;
begin
  -- a login that is bound to tenants does not see the platform's jobs, and must not take them for gone
  if mdm._bound_tenants() is not null then
    return 0;
  end if;

  update mdm.ddm_entity_type_attribute a
  set index_status = 'failed',
    index_error = coalesce(a.index_error, 'the job that was to build the index has ended without a result')
  where a.index_status = 'building'
    and not exists (
      select
      from mdm._open_payloads('index_sync', '{}') o (payload)
      where o.payload ->> 'entity_type_id' = a.entity_type_id::text
        and o.payload ->> 'attribute_key' = a.attribute_key)
    -- a row that a steward holds waits for the next tick
    and (a.entity_type_id, a.attribute_key) in (
      select h.entity_type_id, h.attribute_key
      from mdm.ddm_entity_type_attribute h
      where h.index_status = 'building'
      for no key update skip locked);
  get diagnostics v_attributes = row_count;

  update mdm.ddm_entity_type t
  set gin_index_status = 'failed'
  where t.gin_index_status = 'building'
    and not exists (
      select
      from mdm._open_payloads('gin_backfill', '{}') o (payload)
      where o.payload ->> 'type_key' = t.type_key)
    and t.id in (
      select h.id
      from mdm.ddm_entity_type h
      where h.gin_index_status = 'building'
      for no key update skip locked);
  get diagnostics v_types = row_count;
  return v_attributes + v_types;
end
$$;

comment on function mdm.settle_index_status() is
  'Sets index_status and gin_index_status from building to failed where no job is left that builds, and returns how many. Part of '
  'mdm.cleanup_jobs. Replaying the job, or another toggle, builds the index. A login that is bound to tenants changes nothing.';
