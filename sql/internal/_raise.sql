-- The one place that raises: every error of this schema has a SQLSTATE and a hint that names the remedy.
create or replace function mdm._raise(p_sqlstate text, p_message text, p_detail text, p_hint text)
returns void
language plpgsql
volatile
parallel safe
security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
  -- "detail = null" would be an error of its own, and an empty one prints an empty line
  if p_detail is null then
    raise exception using errcode = p_sqlstate, message = p_message, hint = p_hint;
  end if;
  raise exception using errcode = p_sqlstate, message = p_message, detail = p_detail, hint = p_hint;
end
$$;

comment on function mdm._raise(text, text, text, text) is
  'Raises p_sqlstate (MJnnn) with message, detail (NULL = none) and hint. Private.';
