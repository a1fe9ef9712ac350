-- p_floor of claim_job must be {kind: {priority: timestamptz}}.
create or replace function mdm._check_floor(p_floor jsonb)
returns void
language plpgsql
stable
parallel unsafe
security invoker
as $$
begin
  perform
  from jsonb_each(p_floor) k
  cross join lateral jsonb_each_text(k.value) f
  where f.key::int is null
    or f.value::timestamptz is null;
  if found then
    raise exception using errcode = 'data_exception', message = 'a time is null';
  end if;
exception
  when data_exception then
    perform mdm._raise('MJ005', format('p_floor is malformed: %s', sqlerrm), null,
      'Pass {"kind": {"priority": "timestamp with time zone"}}, or NULL for an exact scan.');
end
$$;

comment on function mdm._check_floor(jsonb) is 'Raises MJ005 unless p_floor is {kind: {priority: timestamptz}}. Private.';
