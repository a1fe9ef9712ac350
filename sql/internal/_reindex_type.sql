-- Checks the payload of a reindex (S2.3) and says which type it asks for.
create or replace function mdm._reindex_type(p_payload jsonb)
returns uuid
language plpgsql
stable
parallel safe
security invoker
as $$
declare
  v_key text := p_payload ->> 'entity_type';
  v_type_id uuid;
begin
  if p_payload - 'entity_type' <> '{}' then
    perform mdm._raise('MJ005', 'a reindex knows no such key in its payload',
      format('payload: %s', left(p_payload::text, 200)),
      'Give {"entity_type": "<type_key>"}, or {} for all types of the tenant.');
  end if;
  if not p_payload ? 'entity_type' then
    return null;
  end if;
  if jsonb_typeof(p_payload -> 'entity_type') <> 'string' then
    perform mdm._raise('MJ005', 'entity_type of a reindex is no string',
      format('entity_type: %s', left((p_payload -> 'entity_type')::text, 200)),
      'Give {"entity_type": "<type_key>"}, or {} for all types of the tenant.');
  end if;
  select t.id
  into v_type_id
  from mdm.ddm_entity_type t
  where t.type_key = v_key;
  if not found then
    perform mdm._raise('MJ005', format('entity type %s does not exist', left(v_key, 200)), null,
      'Register it in mdm.ddm_entity_type, or correct entity_type in the payload.');
  end if;
  return v_type_id;
end
$$;

comment on function mdm._reindex_type(jsonb) is
  'Id of the entity type that a reindex payload names, NULL = all types; MJ005 when the payload is not as it should be. Private.';
