-- Whether a text is a date or a time that PostgreSQL can take: ISO 8601 alone, so that no setting of a session decides what it means.
create or replace function mdm._is_moment(p_text text, p_data_type text)
returns boolean
language plpgsql
stable
parallel unsafe
security invoker
as $$
begin
  if p_data_type = 'date' and p_text ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}$' then
    return isfinite(p_text::date);
  elsif p_data_type = 'timestamp'
    and p_text ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?$'
  then
    return isfinite(p_text::timestamptz);
  end if;
  return false;
exception
  when data_exception then
    return false;
end
$$;

comment on function mdm._is_moment(text, text) is 'Whether a text is an ISO 8601 date, or timestamp, as p_data_type says. Private.';
