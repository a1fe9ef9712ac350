-- The next rows of a reindex. Both bounds are row comparisons, so that one statement walks the index on (tenant, type, id) whatever
-- the job restricts; the last row of the chunk before is read again and left out (an id has no successor to start from).
create or replace function mdm._reindex_rows(
  p_tenant_id uuid,
  p_entity_type_id uuid,
  p_after mdm.aa_reindex_progress,
  p_limit int,
  out tenant_ids uuid[],
  out entity_type_ids uuid[],
  out ids uuid[])
returns record
language plpgsql
stable
parallel safe
security invoker
as $$
declare
  c_first constant uuid := uuid '00000000-0000-0000-0000-000000000000';
  c_last constant uuid := uuid 'ffffffff-ffff-ffff-ffff-ffffffffffff';
begin
  select array_agg(n.tenant_id), array_agg(n.entity_type_id), coalesce(array_agg(n.id), '{}')
  into tenant_ids, entity_type_ids, ids
  from (
    select e.tenant_id, e.entity_type_id, e.id
    from mdm.ddm_entity e
    where (e.tenant_id, e.entity_type_id, e.id) >= (
        coalesce(p_after.tenant_id, p_tenant_id, c_first),
        coalesce(p_after.entity_type_id, p_entity_type_id, c_first),
        coalesce(p_after.entity_id, c_first))
      and (e.tenant_id, e.entity_type_id) <= (coalesce(p_tenant_id, c_last), coalesce(p_entity_type_id, c_last))
      and (p_entity_type_id is null or e.entity_type_id = p_entity_type_id)
      and e.id is distinct from p_after.entity_id
    order by e.tenant_id, e.entity_type_id, e.id
    limit p_limit
  ) n;
end
$$;

comment on function mdm._reindex_rows(uuid, uuid, mdm.aa_reindex_progress, int) is
  'The next p_limit rows behind a position, in the order of (tenant, type, id); NULL = all tenants, all types. Private.';
