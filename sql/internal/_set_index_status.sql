-- Writes where an index stands onto the attribute (S2.7) or the type (S2.8); nothing where that is gone or says so already.
create or replace function mdm._set_index_status(
  p_job_kind text,
  p_entity_type_id uuid,
  p_key text,
  p_status mdm.index_status,
  p_error text)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  if p_job_kind = 'index_sync' then
    update mdm.ddm_entity_type_attribute a
    set index_status = p_status,
      index_error = p_error
    where a.entity_type_id = p_entity_type_id
      and a.attribute_key = p_key
      and (a.index_status, a.index_error) is distinct from (p_status, p_error);
  else
    update mdm.ddm_entity_type t
    set gin_index_status = p_status
    where t.type_key = p_key
      and t.gin_index_status <> p_status;
  end if;
end
$$;

comment on function mdm._set_index_status(text, uuid, text, mdm.index_status, text) is
  'Sets index_status and index_error of an attribute, or gin_index_status of a type, where they differ. Private.';
