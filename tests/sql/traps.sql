-- Traps for functions that look names up in their caller's search path (B62): everyday tables, functions and operators that raise EV001.
create schema evil;
grant usage on schema evil to public;
create table evil.aa_job (like mdm.aa_job);
create table evil.aa_job_kind (like mdm.aa_job_kind);
create table evil.aa_audit_log (like mdm.aa_audit_log);
create table evil.aa_tenant (like mdm.aa_tenant);

create function evil.spring()
returns void
language plpgsql
as $$
begin
  raise exception using errcode = 'EV001', message = 'an object of the caller was used';
end
$$;

do $do$
declare
  c_body constant text := 'returns %s language plpgsql as $f$ begin perform evil.spring(); return null; end $f$';
  v_types oid[] := array[
    'text', 'int4', 'int8', 'uuid', 'timestamptz', 'interval', 'jsonb', 'bool', 'name', 'float8', 'numeric', 'text[]', 'int8[]', 'uuid[]',
    'anyarray', 'anyelement', 'anycompatible', 'anycompatiblearray', 'anyenum']::regtype[]::oid[];
  v record;
begin
  for v in
    select f.proname, pg_get_function_identity_arguments(f.oid) as arguments, pg_get_function_result(f.oid) as result
    from pg_proc f
    where f.pronamespace = 'pg_catalog'::regnamespace
      and f.prokind = 'f'
      and not f.proretset
      and f.proargmodes is null
      and f.provariadic = 0
      and f.proargtypes::oid[] <@ v_types
      and f.prorettype = any (v_types)
  loop
    execute format('create function evil.%I(%s) ' || c_body, v.proname, v.arguments, v.result);
  end loop;

  for v in
    select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result, row_number() over () as number
    from pg_operator o
    where o.oprnamespace = 'pg_catalog'::regnamespace
      and o.oprleft = any (v_types)
      and o.oprright = any (v_types)
      and o.oprresult = any (v_types)
  loop
    execute format('create function evil.operator_%s(%s, %s) ' || c_body, v.number, v.l, v.r, v.result);
    execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.operator_%s)', v.oprname, v.l, v.r, v.number);
  end loop;
end
$do$;
