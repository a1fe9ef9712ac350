-- Appends the note of S8.1 to an error text, once: from the second time on it counts (D9).
create or replace function mdm._recovery_note(p_last_error text)
returns text
language plpgsql
immutable
parallel safe
security invoker
as $$
declare
  c_note constant text := '[stale-claim recovered]';
  v_match text[] := regexp_match(p_last_error, '^(.*?) ?[[]stale-claim recovered[]](?: x([0-9]{1,9}))?$');
  v_note text;
begin
  v_note := case
    when v_match is null then c_note
    else c_note || ' x' || (coalesce(v_match[2]::int, 1) + 1)
  end;
  return ltrim(mdm._cut_bytes(coalesce(v_match[1], p_last_error, ''), 8191 - octet_length(v_note)) || ' ' || v_note);
end
$$;

comment on function mdm._recovery_note(text) is
  'The error text with " [stale-claim recovered]" at its end, " x2", " x3" from the second on, at most 8,192 bytes (S8.1, D9). Private.';
