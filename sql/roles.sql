-- The roles of design 3, all nologin: who owns, who may enqueue, work, administer, watch, build indexes. Roles are
-- cluster-wide: one that another database of the cluster already made is used as it is, if the installer may use it.
do $$
declare
  v_role text;
begin
  foreach v_role in array array[
    'mdm_owner', 'mdm_platform', 'mdm_producer', 'mdm_worker', 'mdm_admin', 'mdm_monitor', 'mdm_indexer'
  ] loop
    begin
      if not exists (select from pg_catalog.pg_roles r where r.rolname = v_role) then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      -- another database's installer was quicker
      when duplicate_object or unique_violation then null;
    end;
  end loop;
end
$$;

-- The installer must be able to act as the two owners. A superuser can; a creator of roles grants it to itself: on 15 CREATEROLE
-- is enough, from 16 on the creator has the admin option but neither INHERIT nor SET until it grants them.
do $$
declare
  v_role text;
  v_super boolean := (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user);
begin
  foreach v_role in array array['mdm_owner', 'mdm_platform'] loop
    if v_super then
      continue;
    end if;
    begin
      if current_setting('server_version_num')::int < 160000 then
        if not pg_has_role(current_user, v_role, 'member') then
          execute format('grant %I to %I', v_role, current_user);
        end if;
      elsif not pg_has_role(current_user, v_role, 'set') or not pg_has_role(current_user, v_role, 'usage') then
        execute format('grant %I to %I with inherit true, set true', v_role, current_user);
      end if;
    exception
      -- another database's installer was quicker
      when unique_violation then null;
    end;
  end loop;
exception
  when insufficient_privilege then
    raise exception 'role % may not act as %', current_user, v_role
      using errcode = 'insufficient_privilege',
        hint = format('Have an administrator run: grant mdm_owner, mdm_platform to %I;', current_user);
end
$$;

-- The indexer works on the tables of the platform: DDL needs the owner's rights (S2.7, S2.8).
do $$
begin
  if not pg_has_role('mdm_indexer', 'mdm_platform', 'member') then
    grant mdm_platform to mdm_indexer;
  end if;
exception
  -- another database's installer was quicker
  when unique_violation then null;
  when insufficient_privilege then
    raise warning 'mdm_indexer is not a member of mdm_platform'
      using hint = 'Have an administrator run: grant mdm_platform to mdm_indexer;';
end
$$;

grant usage, create on schema mdm to mdm_owner, mdm_platform;
grant usage on schema mdm to mdm_producer, mdm_worker, mdm_admin, mdm_monitor, mdm_indexer;

-- What the two owners create from here on is executable by nobody until grants.sql says so.
alter default privileges for role mdm_owner revoke execute on functions from public;
alter default privileges for role mdm_platform revoke execute on functions from public;
