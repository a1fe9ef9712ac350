-- A delay that a caller asked for, within 0 and the cap of the kind (D8). NULL stays NULL: greatest() would make it 0.
create or replace function mdm._clamp_delay(p_delay interval, p_max_delay interval)
returns interval
language sql
immutable
parallel safe
security invoker
as $$
  select case
    -- in seconds: a calendar day of the caller is not always 24 hours (D7)
    when p_delay is not null then make_interval(secs => extract(epoch from least(greatest(p_delay, interval '0'), p_max_delay)))
  end;
$$;

comment on function mdm._clamp_delay(interval, interval) is 'p_delay within 0 .. p_max_delay, NULL when it is NULL (D8). Private.';
