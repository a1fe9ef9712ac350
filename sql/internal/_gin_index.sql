-- The GIN index that the entity type of this key wants now (S2.8), written as pg_get_indexdef prints it. Found by the key alone, since
-- the index is named after it.
create or replace function mdm._gin_index(p_type_key text, out index_name text, out definition text)
returns record
language plpgsql
stable
parallel safe
security invoker
as $$
declare
  v_type_id uuid;
begin
  index_name := mdm._gin_index_name(p_type_key);
  select t.id
  into v_type_id
  from mdm.ddm_entity_type t
  where t.type_key = p_type_key
    and t.is_external_source_target;
  if found then
    definition := format('CREATE INDEX %I ON mdm.ddm_entity USING gin (attributes jsonb_path_ops) WHERE (entity_type_id = %L::uuid)',
      index_name, v_type_id);
  end if;
end
$$;

comment on function mdm._gin_index(text) is
  'Name of a type''s GIN index and its definition; definition NULL = none is wanted. Private.';
