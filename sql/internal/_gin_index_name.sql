-- Name of the partial GIN index of an entity type (S2.8). The prefix leaves 38 bytes: a longer type key is cut and gets a hash.
create or replace function mdm._gin_index_name(p_type_key text)
returns text
language sql
immutable
parallel safe
security invoker
as $$
  select 'ix_entity_attributes_gin_' || case
      when octet_length(p_type_key) <= 38 then p_type_key
      else mdm._cut_bytes(p_type_key, 25) || '_' || left(md5(p_type_key), 12)
    end;
$$;

comment on function mdm._gin_index_name(text) is
  'ix_entity_attributes_gin_<type_key>, with a cut key and a hash where that would have more than 63 bytes; not quoted. Private.';
