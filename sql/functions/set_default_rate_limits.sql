-- The set of rate limits that a tenant gets at its onboarding (S7.2): the platform calls it when it makes a tenant.
create or replace function mdm.set_default_rate_limits(
  p_tenant_id uuid,
  p_kinds text[] default null,
  p_rps double precision default 10,
  p_burst int default 20)
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_rps numeric := round(coalesce(p_rps, 10)::numeric, 9);
  v_burst int := coalesce(p_burst, 20);
  v_kinds text[] := coalesce(p_kinds, array(select k.job_kind from mdm.aa_job_kind k where k.tenant_required and k.enabled));
  v_metadata jsonb;
  v_unknown text;
  v_set jsonb;
  v_new jsonb;
begin
  if v_rps not between 0 and 1000000 or v_burst not between 1 and 1000000 then
    perform mdm._raise('MJ005', format('a rate of %s jobs/s with a burst of %s', v_rps, v_burst), null,
      'p_rps is within 0 .. 1000000, p_burst within 1 .. 1000000.');
  end if;
  select string_agg(quote_nullable(u.kind), ', ' order by u.kind)
  into v_unknown
  from unnest(v_kinds) u (kind)
  where not exists (select from mdm.aa_job_kind k where k.job_kind = u.kind);
  if v_unknown is not null then
    perform mdm._raise('MJ003', format('unknown job kind %s', v_unknown), null, 'Register it with mdm.set_job_kind.');
  end if;
  if p_tenant_id <> all (mdm._bound_tenants()) then
    perform mdm._raise('MJ007', format('tenant %s is not one of this login''s', p_tenant_id), null,
      'Use a login that is bound to this tenant, or to none.');
  end if;
  select coalesce(t.metadata, '{}') into v_metadata from mdm.aa_tenant t where t.id = p_tenant_id for no key update;
  if not found or jsonb_typeof(v_metadata) <> 'object' then
    perform mdm._raise('MJ005', format('no tenant %s whose metadata is a JSON object', coalesce(p_tenant_id::text, 'NULL')), null,
      'Insert the tenant into mdm.aa_tenant first.');
  end if;

  v_set := case when jsonb_typeof(v_metadata -> 'rate_limit') = 'object' then v_metadata -> 'rate_limit' else '{}' end;
  select coalesce(jsonb_object_agg(u.kind, jsonb_build_object('rps', v_rps, 'burst', v_burst)), '{}')
  into v_new
  from unnest(v_kinds) u (kind)
  where not v_set ? u.kind;
  if v_new <> '{}' then
    update mdm.aa_tenant t
    set metadata = v_metadata || jsonb_build_object('rate_limit', v_set || v_new)
    where t.id = p_tenant_id;
  end if;
  return (select count(*) from jsonb_object_keys(v_new));
end
$$;

comment on function mdm.set_default_rate_limits(uuid, text[], double precision, int) is
  'Writes the default rate limits of a new tenant into aa_tenant.metadata.rate_limit (S7.2) and returns how many. p_kinds: NULL = the kinds that require a tenant. A kind that has a setting keeps it. p_rps: jobs per second, p_burst: jobs at once. Errors: MJ003 unknown kind, MJ005 bad number or no such tenant, MJ007 a login that is bound to other tenants.';
