-- Brings the good rows of a chunk into ddm_entity (S2.2). A key that is there already, whoever made it and whenever, takes the
-- attributes of the upload (B119). In the order of the keys, so that two imports do not lock crosswise.
create or replace function mdm._store_import(p_import mdm.aa_import, p_until int)
returns int
language plpgsql
volatile
parallel unsafe
security invoker
-- a chunk has thousands of rows, and the planner expects few
set enable_nestloop = off
set jit = off
as $$
declare
  v_rows int;
begin
  -- the ids come with the insert: looked up row by row they cost more than all the rest, as soon as a plan from before the import
  -- takes another index than that of the key
  with stored as materialized (
    insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes)
    select p_import.tenant_id, p_import.entity_type_id, btrim(r.entity_key), r.attributes
    from mdm.aa_import_row r
    where r.import_id = p_import.id
      and r.row_no > p_import.last_row_no
      and r.row_no <= p_until
      and r.status = 'pending'
    order by btrim(r.entity_key)
    on conflict (tenant_id, entity_type_id, entity_key) do update
    set attributes = excluded.attributes,
      updated_at = clock_timestamp()
    returning id, entity_key
  )
  update mdm.aa_import_row r
  set status = 'imported',
    error = null,
    entity_id = s.id
  from stored s
  where r.import_id = p_import.id
    and r.row_no > p_import.last_row_no
    and r.row_no <= p_until
    and r.status = 'pending'
    and s.entity_key = btrim(r.entity_key);
  get diagnostics v_rows = row_count;
  return v_rows;
end
$$;

comment on function mdm._store_import(mdm.aa_import, int) is
  'Inserts or updates the entities of the pending rows of a chunk, marks the rows, and returns how many there were. Private.';
