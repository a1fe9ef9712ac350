-- What has to be looked at over the whole upload (S2.2), once: rows with the same key, and references to rows of the upload itself.
-- Of rows whose keys are equal after trimming and case folding the last one counts, whatever becomes of it (B118).
create or replace function mdm._begin_import(p_import mdm.aa_import)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
-- over the whole upload at once: row by row, with a plan that was made while the tables were empty, it would take hours
set enable_nestloop = off
set jit = off
as $$
declare
  v_total int;
begin
  select count(*)
  into v_total
  from mdm.aa_import_row r
  where r.import_id = p_import.id
    and r.status = 'pending';

  update mdm.aa_import_row r
  set status = 'rejected',
    error = format('row %s has the same entity_key', k.last_row_no)
  from (
    select o.row_no, max(o.row_no) over (partition by lower(btrim(o.entity_key))) as last_row_no
    from mdm.aa_import_row o
    where o.import_id = p_import.id
      and o.status = 'pending'
      and btrim(o.entity_key) <> ''
  ) k
  where r.import_id = p_import.id
    and r.row_no = k.row_no
    and k.row_no < k.last_row_no;

  update mdm.aa_import_row r
  set status = 'rejected',
    error = format('%s: there is no entity %s', a.attribute_key, left(r.attributes ->> a.attribute_key, 100))
  from mdm.ddm_entity_type_attribute a
  where r.import_id = p_import.id
    and r.status = 'pending'
    and a.entity_type_id = p_import.entity_type_id
    and a.reference_type_id = p_import.entity_type_id
    and jsonb_typeof(r.attributes -> a.attribute_key) = 'string'
    and not exists (
      select
      from mdm.ddm_entity e
      where e.tenant_id = p_import.tenant_id
        and e.entity_type_id = p_import.entity_type_id
        and e.entity_key = r.attributes ->> a.attribute_key)
    and not exists (
      select
      from mdm.aa_import_row o
      where o.import_id = p_import.id
        and o.status <> 'rejected'
        and btrim(o.entity_key) = r.attributes ->> a.attribute_key);

  update mdm.aa_import i
  set status = 'running',
    rows_total = v_total,
    rows_imported = 0,
    rows_rejected = (
      select count(*)
      from mdm.aa_import_row r
      where r.import_id = i.id
        and r.status = 'rejected'),
    last_row_no = 0,
    error = null,
    report = null,
    completed_at = null
  where i.id = p_import.id;
end
$$;

comment on function mdm._begin_import(mdm.aa_import) is
  'Begins the pass over an upload: rejects all but the last row of a key, and dangling references to its own type. Private.';
