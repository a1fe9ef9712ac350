-- Who acts (D11): the given principal, else the one mapped to the login, else "unknown". Never a session setting, never an error, also
-- where a platform's own table maps a login to two.
create or replace function mdm._actor(p_actor_principal_id uuid)
returns uuid
language plpgsql
stable
parallel safe
security invoker
as $$
begin
  return coalesce(
    p_actor_principal_id,
    (select p.id from mdm.aa_principal p where p.role_name = session_user limit 1),
    (select p.id from mdm.aa_principal p where p.name = 'unknown' limit 1));
end
$$;

comment on function mdm._actor(uuid) is 'The acting principal of an audit row (D11). Private.';
