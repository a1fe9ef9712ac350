-- The GIN index that an entity type wants now (S2.8), written as pg_get_indexdef prints it.
create or replace function mdm._gin_index(
  p_entity_type_id uuid,
  p_type_key text,
  out index_name text,
  out definition text)
returns record
language plpgsql
stable
parallel safe
security invoker
as $$
begin
  index_name := mdm._gin_index_name(p_type_key);
  -- a type that was given another key wants the index of that key, not of this one
  if exists (
    select
    from mdm.ddm_entity_type t
    where t.id = p_entity_type_id
      and t.type_key = p_type_key
      and t.is_external_source_target)
  then
    definition := format('CREATE INDEX %I ON mdm.ddm_entity USING gin (attributes jsonb_path_ops) WHERE (entity_type_id = %L::uuid)',
      index_name, p_entity_type_id);
  end if;
end
$$;

comment on function mdm._gin_index(uuid, text) is
  'Name of a type''s GIN index and its definition; definition NULL = none is wanted. Private.';
