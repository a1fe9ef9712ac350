-- What the job system needs of the platform's tables (D20). Our stand-ins grant it here; on an existing platform an installer that may
-- not grant is told the statements that the tables' owner has to run.
do $$
declare
  v_right record;
  v_refused text[] := '{}';
begin
  for v_right in
    select r.*, format('grant %s on mdm.%I to mdm_owner', concat(r.privilege, ' (' || quote_ident(r.column_name) || ')'), r.table_name) as statement
    from (values
      ('aa_tenant', null, 'select'),
      -- the default rate limits of a new tenant (S7.2)
      ('aa_tenant', 'metadata', 'update'),
      ('aa_principal', null, 'select'),
      ('aa_principal_tenant', null, 'select'),
      ('aa_audit_log', null, 'select'),
      ('aa_audit_log', null, 'insert'),
      -- reindex (S2.3)
      ('ddm_entity_type', null, 'select'),
      ('ddm_entity_type_attribute', null, 'select'),
      ('ddm_entity', null, 'select'),
      ('ddm_entity', 'search_vector', 'update'),
      -- email_send (S2.1)
      ('aa_email_suppression', null, 'select'),
      ('aa_email_log', null, 'select'),
      ('aa_email_log', null, 'insert'),
      ('aa_email_log', null, 'update'),
      -- index_sync, gin_backfill (S2.7, S2.8)
      ('ddm_entity_type_attribute', 'index_status', 'update'),
      ('ddm_entity_type_attribute', 'index_error', 'update'),
      ('ddm_entity_type', 'gin_index_status', 'update'),
      -- virus_scan (S2.6)
      ('ddm_attachment', null, 'select'),
      ('ddm_attachment', 'virus_scan_status', 'update'),
      ('ddm_attachment', 'virus_scan_result', 'update'),
      ('ddm_attachment', 'scanned_at', 'update'),
      -- outbox_dispatch (S2.4)
      ('aa_webhook_endpoint', null, 'select'),
      ('aa_webhook_endpoint', 'failures', 'update'),
      ('aa_webhook_endpoint', 'paused_until', 'update'),
      ('aa_webhook_delivery', null, 'select'),
      ('aa_webhook_delivery', null, 'insert'),
      ('aa_webhook_delivery', null, 'update'),
      -- bulk_import (S2.2)
      ('aa_import', null, 'select'),
      ('aa_import', null, 'update'),
      ('aa_import_row', null, 'select'),
      ('aa_import_row', null, 'update'),
      ('ddm_entity', null, 'insert'),
      ('ddm_entity', 'attributes', 'update'),
      ('ddm_entity', 'updated_at', 'update'),
      -- compact_outbox (S2.5)
      ('aa_outbox_event', null, 'select'),
      ('aa_outbox_event', null, 'update'),
      ('aa_outbox_event', null, 'delete')
    ) as r (table_name, column_name, privilege)
    where case
      when r.column_name is null then not has_table_privilege('mdm_owner', 'mdm.' || r.table_name, r.privilege)
      else not has_column_privilege('mdm_owner', 'mdm.' || r.table_name, r.column_name, r.privilege)
    end
  loop
    begin
      execute v_right.statement;
    exception
      when insufficient_privilege then
        v_refused := v_refused || v_right.statement;
    end;
  end loop;
  if v_refused <> '{}' then
    raise exception 'mdm jobs needs rights on the platform''s tables that % may not grant', current_user
      using errcode = 'insufficient_privilege',
        hint = 'Have the owner of the tables run: ' || array_to_string(v_refused, '; ') || ';';
  end if;
end
$$;
