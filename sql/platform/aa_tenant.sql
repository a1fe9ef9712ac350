-- Stand-in for the platform's tenants (D20). metadata.rate_limit.<job_kind> = {"rps": ..., "burst": ...} is read by the runner (S7.2).
do $$
begin
  if to_regclass('mdm.aa_tenant') is not null then
    return;
  end if;

  create table mdm.aa_tenant (
    id uuid primary key,
    name text not null default '',
    metadata jsonb not null default '{}'
  );

  comment on table mdm.aa_tenant is 'Tenants of the platform (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_tenant.id is 'The tenant.';
  comment on column mdm.aa_tenant.name is 'For people.';
  comment on column mdm.aa_tenant.metadata is 'Settings; rate_limit.<job_kind> = {"rps": jobs per second, "burst": jobs} limits a kind for this tenant (S7.2).';
end
$$;
