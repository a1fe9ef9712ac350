-- The words of an entity's searchable attributes: the one definition that the trigger on ddm_entity and reindex share (S2.3).
create or replace function mdm._entity_search_vector(p_attributes jsonb, p_keys text[])
returns tsvector
language plpgsql
immutable
parallel safe
security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_found jsonb;
begin
  if jsonb_typeof(p_attributes) is distinct from 'object' then
    return ''::tsvector;
  end if;
  -- taken away instead of gathered: jsonb_object_agg takes seconds for a value with many elements
  v_found := p_attributes - array(
    select k.key
    from jsonb_object_keys(p_attributes) as k (key)
    where (k.key = any(p_keys)) is not true);
  if length(v_found::text) <= 100000 then
    return jsonb_to_tsvector('pg_catalog.simple', v_found, '["string", "numeric"]');
  end if;
  -- A tsvector holds 1 MB of words and positions, at most about 7 bytes a character of text: what goes beyond is left out, so that
  -- one monstrous entity costs its tail and not the chunk it is in.
  return (
    select to_tsvector('pg_catalog.simple', left(string_agg(v.value, ' '), 100000))
    from jsonb_array_elements_text(
      jsonb_path_query_array(v_found, 'strict $.** ? (@.type() == "string" || @.type() == "number")')) as v (value));
end
$$;

comment on function mdm._entity_search_vector(jsonb, text[]) is
  'Search vector of the attributes p_keys (configuration simple; strings and numbers at any depth; null, booleans and missing keys give '
  'nothing). Of more than 100,000 characters only the first 100,000 are searchable. Never NULL.';
