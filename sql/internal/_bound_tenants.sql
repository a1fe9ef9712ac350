-- The tenants that the login is bound to, NULL when it is bound to none and so sees all (the policy of aa_job says the same in place).
create or replace function mdm._bound_tenants()
returns uuid[]
language plpgsql
stable
parallel safe
security invoker
as $$
begin
  return (
    select array_agg(pt.tenant_id)
    from mdm.aa_principal p
    join mdm.aa_principal_tenant pt on pt.principal_id = p.id
    where p.role_name = session_user);
end
$$;

comment on function mdm._bound_tenants() is 'Tenants that session_user is bound to, NULL = all. Private.';
