-- Rebuilds the search vectors of locked rows in one statement; a vector that is right already is not written again.
create or replace function mdm._build_vectors(p_ids uuid[])
returns int
language sql
volatile
parallel unsafe
security invoker
as $$
  with built as materialized (
    select
      e.id,
      mdm._entity_search_vector(e.attributes, k.keys) as search_vector
    from mdm.ddm_entity e
    left join (
      select a.entity_type_id, array_agg(a.attribute_key) as keys
      from mdm.ddm_entity_type_attribute a
      where a.searchable
      group by a.entity_type_id
    ) k on k.entity_type_id = e.entity_type_id
    where e.id = any(p_ids)
  ),
  changed as (
    update mdm.ddm_entity e
    set search_vector = b.search_vector
    from built b
    where e.id = b.id
      and e.search_vector is distinct from b.search_vector
    returning e.id
  )
  select count(*)::int
  from changed;
$$;

comment on function mdm._build_vectors(uuid[]) is
  'Rebuilds search_vector of these ddm_entity rows from the attributes that are searchable now; the number that changed. Private.';
