-- The stand-ins refer to each other. Where a platform brings some of the tables itself, mdm_platform, who owns the stand-ins, needs the
-- right to refer to those (D20). Run by the installer, who is told what to ask for when it may not grant it.
do $$
declare
  v_table text;
  v_refused text[] := '{}';
begin
  for v_table in
    select format('mdm.%I', c.relname)
    from pg_catalog.pg_class c
    where c.relnamespace = 'mdm'::regnamespace
      and c.relname in ('aa_tenant', 'aa_principal', 'aa_import', 'aa_outbox_event', 'aa_webhook_endpoint', 'ddm_entity_type', 'ddm_entity')
      and c.relkind in ('r', 'p')
      and not has_table_privilege('mdm_platform', c.oid, 'references')
    order by c.relname
  loop
    begin
      execute format('grant references on %s to mdm_platform', v_table);
    exception
      when insufficient_privilege then
        v_refused := v_refused || format('grant references on %s to mdm_platform', v_table);
    end;
  end loop;
  if v_refused <> '{}' then
    raise exception 'the stand-ins may not refer to the platform''s tables, and % may not allow it', current_user
      using errcode = 'insufficient_privilege',
        hint = 'Have the owner of the tables run: ' || array_to_string(v_refused, '; ') || ';';
  end if;
end
$$;
