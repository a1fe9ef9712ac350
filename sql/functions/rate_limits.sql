-- The token buckets that a runner fills (S7.1, S7.2): one per tenant and kind that has a setting. A login that is bound to tenants gets
-- theirs only.
create or replace function mdm.rate_limits(p_kinds text[])
returns table (tenant_id uuid, job_kind text, rps double precision, burst int, problem text)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
as $$
  select t.id, l.job_kind,
    -- rounded: a number too small for a double would be an error, and stop all tenants
    case when c.problem is null then round((l.setting ->> 'rps')::numeric, 9)::double precision end,
    case when c.problem is null then (l.setting ->> 'burst')::numeric::int end,
    c.problem
  from mdm.aa_tenant t
  cross join lateral jsonb_each(
    case when jsonb_typeof(t.metadata -> 'rate_limit') = 'object' then t.metadata -> 'rate_limit' else '{}' end) as l (job_kind, setting)
  cross join lateral (
    select case
      when jsonb_typeof(l.setting) <> 'object' then 'not an object'
      when jsonb_typeof(l.setting -> 'rps') is distinct from 'number' then 'rps is not a number'
      when (l.setting ->> 'rps')::numeric not between 0 and 1000000 then 'rps is not within 0 .. 1000000'
      when jsonb_typeof(l.setting -> 'burst') is distinct from 'number' then 'burst is not a number'
      when (l.setting ->> 'burst')::numeric not between 1 and 1000000 then 'burst is not within 1 .. 1000000'
    end as problem) c
  where l.job_kind = any (p_kinds)
    and coalesce(t.id = any ((select mdm._bound_tenants())::uuid[]), true)
  order by t.id, l.job_kind;
$$;

comment on function mdm.rate_limits(text[]) is
  'Rate limits from aa_tenant.metadata.rate_limit.<job_kind> = {"rps", "burst"} (S7.2): rps jobs per second (0 = none), burst jobs at once. problem is not NULL for a setting that is malformed; its rps and burst are NULL. A login that is bound to tenants gets theirs only.';
