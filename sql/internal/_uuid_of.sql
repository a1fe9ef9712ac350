-- A uuid out of a payload, where anything may stand.
create or replace function mdm._uuid_of(p_text text)
returns uuid
language sql
immutable
parallel safe
security invoker
as $$
  select case when p_text ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then p_text::uuid end;
$$;

comment on function mdm._uuid_of(text) is 'The uuid that the text is, NULL when it is none. Private.';
