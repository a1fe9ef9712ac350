-- A string constant as pg_get_indexdef prints it: never E'...', so that a wanted definition compares equal to the stored one.
create or replace function mdm._index_literal(p_text text)
returns text
language sql
immutable
parallel safe
security invoker
as $$
  select '''' || replace(p_text, '''', '''''') || '''';
$$;

comment on function mdm._index_literal(text) is
  'Quotes a text for an index definition; right where standard_conforming_strings is on. Private.';
