-- Which of the tenants that a runner was told to serve it gets no jobs of, as things stand: it would wait for them without a word.
create or replace function mdm.check_tenants(p_tenant_ids uuid[])
returns table (tenant_id uuid, problem text)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
as $$
  select distinct u.tenant_id,
    -- whether other tenants exist is none of a bound login's business
    case when b.tenant_ids is null then 'there is no such tenant' else 'the login is not bound to it' end
  from unnest(p_tenant_ids) u (tenant_id)
  cross join (select mdm._bound_tenants() as tenant_ids) b
  where not coalesce(
    u.tenant_id = any (b.tenant_ids),
    exists (select from mdm.aa_tenant t where t.id = u.tenant_id))
  order by u.tenant_id;
$$;

comment on function mdm.check_tenants(uuid[]) is
  'Those of p_tenant_ids of which claim_job gives this login no jobs, and why: there is no such tenant, or the login is bound to others.';
