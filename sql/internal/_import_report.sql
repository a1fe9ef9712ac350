-- What people want to know of an import at its end (S2.2).
create or replace function mdm._import_report(p_import_id uuid)
returns jsonb
language sql
stable
parallel safe
security invoker
as $$
  select jsonb_build_object(
    'rows', count(*),
    'imported', count(*) filter (where r.status = 'imported'),
    'rejected', count(*) filter (where r.status = 'rejected'),
    'errors', coalesce((
      select jsonb_agg(jsonb_build_object('error', e.error, 'rows', e.rows, 'first_row', e.first_row) order by e.rows desc, e.first_row)
      from (
        select o.error, count(*) as rows, min(o.row_no) as first_row
        from mdm.aa_import_row o
        where o.import_id = p_import_id
          and o.status = 'rejected'
        group by o.error
        order by count(*) desc, min(o.row_no)
        limit 20
      ) e), '[]'))
  from mdm.aa_import_row r
  where r.import_id = p_import_id;
$$;

comment on function mdm._import_report(uuid) is 'The report of an upload: rows, imported, rejected, the most frequent 20 errors. Private.';
