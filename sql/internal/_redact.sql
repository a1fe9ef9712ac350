-- Hides the values that a kind lists (aa_job_kind.redact) in views and audit snapshots. The path is pinned, since a view calls it with
-- its reader's: an operator of his own could show what is hidden.
create or replace function mdm._redact(p_payload jsonb, p_keys text[])
returns jsonb
language sql
immutable
parallel safe
security invoker
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_payload ?| p_keys then p_payload || (
      select jsonb_object_agg(k.key, '[redacted]')
      from unnest(p_keys) as k (key)
      where p_payload ? k.key)
    else p_payload
  end;
$$;

comment on function mdm._redact(jsonb, text[]) is
  'The payload with the values of p_keys replaced by "[redacted]". Pure; the views call it with the rights of their reader.';
