-- What is wrong with the rows of a chunk (S2.2), all of it, set-based: keys, types, required attributes, references.
create or replace function mdm._import_problems(p_import mdm.aa_import, p_until int)
returns table (row_no int, error text)
language sql
volatile
parallel unsafe
security invoker
as $$
  with rows as materialized (
    select r.row_no, btrim(r.entity_key) as entity_key, r.attributes, jsonb_typeof(r.attributes) is not distinct from 'object' as is_object
    from mdm.aa_import_row r
    where r.import_id = p_import.id
      and r.row_no > p_import.last_row_no
      and r.row_no <= p_until
      and r.status = 'pending'
  ),
  registered as materialized (
    select a.attribute_key, a.data_type, a.required, nullif(a.reference_type_id, p_import.entity_type_id) as reference_type_id
    from mdm.ddm_entity_type_attribute a
    where a.entity_type_id = p_import.entity_type_id
  ),
  given as materialized (
    select r.row_no, v.key, v.value, jsonb_typeof(v.value) as value_type
    from rows r
    cross join lateral jsonb_each(case when r.is_object then r.attributes else '{}' end) v
  ),
  problems as (
    select r.row_no, 'entity_key is missing' as error
    from rows r
    where coalesce(r.entity_key, '') = ''
    union all
    select r.row_no, 'entity_key is longer than 1,000 bytes'
    from rows r
    where octet_length(r.entity_key) > 1000
    union all
    select r.row_no, 'attributes is no JSON object'
    from rows r
    where not r.is_object
    union all
    select r.row_no, a.attribute_key || ' is required'
    from rows r
    join registered a on a.required
    where r.is_object
      and coalesce(r.attributes -> a.attribute_key, 'null') = 'null'
    union all
    select g.row_no, case when a.attribute_key is null then left(g.key, 100) || ' is no attribute of the type' else a.attribute_key || ' is no '
      || a.data_type end
    from given g
    left join registered a on a.attribute_key = g.key
    where g.value_type <> 'null'
      and case a.data_type
        -- a text, or a list of texts
        when 'text' then case g.value_type
          when 'array' then jsonb_path_exists(g.value, 'strict $[*] ? (@.type() != "string")')
          else g.value_type <> 'string'
        end
        when 'number' then g.value_type <> 'number'
        when 'boolean' then g.value_type <> 'boolean'
        when 'date' then g.value_type <> 'string' or not mdm._is_moment(g.value #>> '{}', 'date')
        when 'timestamp' then g.value_type <> 'string' or not mdm._is_moment(g.value #>> '{}', 'timestamp')
        else true
      end
    union all
    select g.row_no, format('%s: there is no entity %s', a.attribute_key, left(g.value #>> '{}', 100))
    from given g
    join registered a on a.attribute_key = g.key
      and a.reference_type_id is not null
    where g.value_type = 'string'
      and not exists (
        select
        from mdm.ddm_entity e
        where e.tenant_id = p_import.tenant_id
          and e.entity_type_id = a.reference_type_id
          and e.entity_key = g.value #>> '{}')
  )
  select p.row_no, left(string_agg(p.error, '; ' order by p.error), 2000)
  from problems p
  group by p.row_no;
$$;

comment on function mdm._import_problems(mdm.aa_import, int) is
  'The rows of a chunk (behind last_row_no, up to p_until) that cannot be imported, with everything that is wrong with them. Private.';
