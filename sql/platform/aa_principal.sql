-- Stand-in for the platform's principals (D20): who acts. role_name maps a database login to its principal (D11).
do $$
begin
  if to_regclass('mdm.aa_principal') is not null then
    return;
  end if;

  create table mdm.aa_principal (
    id uuid primary key default gen_random_uuid(),
    name text not null unique,
    kind text not null default 'user',
    role_name name unique
  );

  comment on table mdm.aa_principal is 'Who acts: users and service accounts (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_principal.id is 'The principal; audit rows carry it as actor_principal_id (S11.1).';
  comment on column mdm.aa_principal.name is 'Unique name. The principal "unknown" stands for a session that no principal is mapped to (D11).';
  comment on column mdm.aa_principal.kind is 'user, service or system.';
  comment on column mdm.aa_principal.role_name is 'Database login (session_user) that acts as this principal, NULL = none (D11).';
end
$$;
