-- Stores what a chunk of a reindex did, in the transaction that did it.
create or replace function mdm._store_reindex(
  p_job_id bigint, p_tenant_id uuid, p_entity_type_id uuid, p_entity_id uuid, p_rebuilt int, p_changed int)
returns void
language sql
volatile
parallel unsafe
security invoker
as $$
  update mdm.aa_reindex_progress p
  set
    waits_for = '{}',
    tenant_id = coalesce(p_tenant_id, p.tenant_id),
    entity_type_id = coalesce(p_entity_type_id, p.entity_type_id),
    entity_id = coalesce(p_entity_id, p.entity_id),
    rows_rebuilt = p.rows_rebuilt + p_rebuilt,
    rows_changed = p.rows_changed + p_changed,
    chunks = p.chunks + 1,
    updated_at = clock_timestamp()
  where p.job_id = p_job_id;
$$;

comment on function mdm._store_reindex(bigint, uuid, uuid, uuid, int, int) is
  'Adds a chunk to the progress row of a reindex; the ids are those of the last row rebuilt, NULL = there was none. Private.';
