-- Name of the expression index of an attribute (S2.7). Built from the id of the type, so that it can still be told when the type or
-- the attribute is gone; the hash keeps keys apart that look the same once they are cut.
create or replace function mdm._attribute_index_name(p_entity_type_id uuid, p_attribute_key text)
returns text
language sql
immutable
parallel safe
security invoker
as $$
  select 'ix_entity_attribute_' || mdm._cut_bytes(p_attribute_key, 28) || '_'
    || left(md5(p_entity_type_id::text || ' ' || p_attribute_key), 12);
$$;

comment on function mdm._attribute_index_name(uuid, text) is
  'ix_entity_attribute_<key, at most 28 bytes>_<12 hex digits of a hash of type and key>, at most 61 bytes; not quoted. Private.';
