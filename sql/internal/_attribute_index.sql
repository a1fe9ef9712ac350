-- The expression index that an attribute wants now (S2.7): one that is searchable or sortable has one, on the text of its value; a
-- number that is to be sorted is cast, else 10 would stand before 9. Written as pg_get_indexdef prints it.
create or replace function mdm._attribute_index(
  p_entity_type_id uuid,
  p_attribute_key text,
  out index_name text,
  out definition text)
returns record
language plpgsql
stable
parallel safe
security invoker
as $$
declare
  v_attribute record;
  v_expression text := format('(attributes ->> %s::text)', mdm._index_literal(p_attribute_key));
begin
  index_name := mdm._attribute_index_name(p_entity_type_id, p_attribute_key);
  select a.searchable, a.sortable, a.data_type
  into v_attribute
  from mdm.ddm_entity_type_attribute a
  where a.entity_type_id = p_entity_type_id
    and a.attribute_key = p_attribute_key;
  if v_attribute.searchable or v_attribute.sortable then
    definition := format('CREATE INDEX %I ON mdm.ddm_entity USING btree ((%s)) WHERE (entity_type_id = %L::uuid)',
      index_name,
      case when v_attribute.sortable and v_attribute.data_type = 'number' then format('(%s)::numeric', v_expression)
        else v_expression end,
      p_entity_type_id);
  end if;
end
$$;

comment on function mdm._attribute_index(uuid, text) is
  'Name of an attribute''s index and its definition; definition NULL = none is wanted: neither searchable nor sortable, or gone. Private.';
