-- What a runner needs to know of its kinds.
create or replace function mdm.job_kind_settings(p_kinds text[])
returns table (job_kind text, stale_ttl interval, handler_timeout interval, paused boolean)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
as $$
  select k.job_kind, k.stale_ttl, k.handler_timeout, coalesce(k.paused_until > clock_timestamp(), false)
  from mdm.aa_job_kind k
  where k.job_kind = any (p_kinds)
  order by k.job_kind;
$$;

comment on function mdm.job_kind_settings(text[]) is 'Settings that a runner applies, a row per registered kind of p_kinds (S2.9, D5).';
