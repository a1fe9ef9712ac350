-- Delay before the next attempt (S6.1, D8). The exponent is clamped before the power, so every int gives a result.
create or replace function mdm._backoff(
  p_attempts int,
  p_base_delay interval,
  p_max_delay interval,
  p_jitter double precision,
  p_random double precision)
returns interval
language plpgsql
immutable
parallel safe
security invoker
as $$
declare
  v_seconds double precision := least(
    extract(epoch from p_base_delay)::double precision * power(2::double precision, least(greatest(p_attempts, 1) - 1, 62)),
    extract(epoch from p_max_delay)::double precision);
begin
  return make_interval(secs => v_seconds + p_random * p_jitter * v_seconds);
end
$$;

comment on function mdm._backoff(int, interval, interval, double precision, double precision) is
  'min(base * 2^(attempts-1), max) plus p_random (0 to 1) of the jitter fraction of it (S6.1, D8). Private.';
