-- What a reindex rebuilds, as one text to compare: when a steward marks another attribute while it runs or waits for a retry, the
-- rows rebuilt so far are out of date and the pass has to start anew.
create or replace function mdm._reindex_digest(p_tenant_id uuid, p_entity_type_id uuid)
returns text
language sql
stable
parallel safe
security invoker
as $$
  select md5(concat_ws('|', 'tenant', p_tenant_id, 'type', p_entity_type_id, 'searchable', (
    select jsonb_agg(jsonb_build_array(a.entity_type_id, a.attribute_key) order by a.entity_type_id, a.attribute_key)
    from mdm.ddm_entity_type_attribute a
    where a.searchable
      and (p_entity_type_id is null or a.entity_type_id = p_entity_type_id))));
$$;

comment on function mdm._reindex_digest(uuid, uuid) is
  'Digest of a reindex'' tenant, type and searchable attributes; NULL = all tenants, all types. Private.';
