-- The principal for sessions that nobody is mapped to (D11).
do $$
begin
  if not exists (select from mdm.aa_principal p where p.name = 'unknown') then
    insert into mdm.aa_principal (id, name, kind)
    values (gen_random_uuid(), 'unknown', 'system')
    on conflict do nothing;
  end if;
exception
  when insufficient_privilege then
    raise exception '% may not add the principal "unknown"', current_user
      using errcode = 'insufficient_privilege',
        hint = 'Have the owner of mdm.aa_principal insert a row with the name unknown, then migrate again.';
end
$$;
