-- The first p_bytes bytes of a text, on a character boundary (D9).
create or replace function mdm._cut_bytes(p_text text, p_bytes int)
returns text
language plpgsql
immutable
parallel safe
security invoker
as $$
declare
  v_bytes bytea;
  v_end int := p_bytes;
begin
  if octet_length(p_text) <= p_bytes then
    return p_text;
  end if;
  v_bytes := convert_to(p_text, 'UTF8');
  -- a byte 10xxxxxx continues the character before it
  while v_end > 0 and get_byte(v_bytes, v_end) & 192 = 128 loop
    v_end := v_end - 1;
  end loop;
  return convert_from(substring(v_bytes for v_end), 'UTF8');
end
$$;

comment on function mdm._cut_bytes(text, int) is 'Truncates to at most p_bytes bytes without cutting a character (D9). Private.';
