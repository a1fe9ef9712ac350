-- Keeps ddm_entity.search_vector while rows change, so that a reindex only has to catch up with what a steward changed. Only on our
-- stand-in: a platform that brings its own ddm_entity keeps its vectors in its own way (D20).
create or replace function mdm._set_search_vector()
returns trigger
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  new.search_vector := mdm._entity_search_vector(new.attributes, array(
    select a.attribute_key
    from mdm.ddm_entity_type_attribute a
    where a.entity_type_id = new.entity_type_id
      and a.searchable));
  return new;
end
$$;

comment on function mdm._set_search_vector() is
  'Trigger of ddm_entity: computes search_vector from the attributes that are searchable now. Runs with the rights of the writer.';

do $$
begin
  if (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.ddm_entity'::regclass) = 'mdm_platform'::regrole then
    -- reindex writes search_vector alone and does not fire it
    create or replace trigger ddm_entity_search_vector
      before insert or update of attributes, entity_type_id on mdm.ddm_entity
      for each row
      execute function mdm._set_search_vector();
  end if;
end
$$;
