-- The principal for sessions that nobody is mapped to (D11).
insert into mdm.aa_principal (name, kind)
values ('unknown', 'system')
on conflict (name) do nothing;
