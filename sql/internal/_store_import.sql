-- Brings the good rows of a chunk into ddm_entity (S2.2). A key that is there already, whoever made it and whenever, takes the
-- attributes of the upload (B119). In the order of the keys, so that two imports do not lock crosswise.
create or replace function mdm._store_import(p_import mdm.aa_import, p_until int)
returns int
language sql
volatile
parallel unsafe
security invoker
as $$
  with good as materialized (
    select r.row_no, btrim(r.entity_key) as entity_key, r.attributes
    from mdm.aa_import_row r
    where r.import_id = p_import.id
      and r.row_no > p_import.last_row_no
      and r.row_no <= p_until
      and r.status = 'pending'
  ),
  stored as (
    insert into mdm.ddm_entity as e (tenant_id, entity_type_id, entity_key, attributes)
    select p_import.tenant_id, p_import.entity_type_id, g.entity_key, g.attributes
    from good g
    order by g.entity_key
    on conflict (tenant_id, entity_type_id, entity_key) do update
    set attributes = excluded.attributes,
      updated_at = clock_timestamp()
    returning e.id, e.entity_key
  ),
  marked as (
    update mdm.aa_import_row r
    set status = 'imported',
      error = null,
      entity_id = s.id
    from good g
    join stored s on s.entity_key = g.entity_key
    where r.import_id = p_import.id
      and r.row_no = g.row_no
    returning r.row_no
  )
  select count(*)::int
  from marked;
$$;

comment on function mdm._store_import(mdm.aa_import, int) is
  'Inserts or updates the entities of the pending rows of a chunk, marks the rows, and returns how many there were. Private.';
