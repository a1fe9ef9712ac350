-- Stand-in for the platform's binding of principals to tenants (D20). No row = all tenants; row-level security reads it. So no row goes
-- by itself: a login whose only tenant, or whose principal, is deleted would see all the others.
do $$
begin
  if to_regclass('mdm.aa_principal_tenant') is not null then
    return;
  end if;

  create table mdm.aa_principal_tenant (
    principal_id uuid not null references mdm.aa_principal (id),
    tenant_id uuid not null references mdm.aa_tenant (id),
    primary key (principal_id, tenant_id)
  );

  create index ix_aa_principal_tenant_tenant on mdm.aa_principal_tenant (tenant_id);

  comment on table mdm.aa_principal_tenant is 'The tenants a principal is bound to; a principal without a row sees all tenants and the platform''s own jobs.';
  comment on column mdm.aa_principal_tenant.principal_id is 'The bound principal.';
  comment on column mdm.aa_principal_tenant.tenant_id is 'A tenant it may see.';
end
$$;
