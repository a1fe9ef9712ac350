-- Says clearly what an existing platform misses (D20): the columns of its tables that the job system reads or writes.
do $$
declare
  v_missing text;
begin
  select string_agg(format('mdm.%s.%s', r.table_name, r.column_name), ', ' order by r.table_name, r.column_name)
  into v_missing
  from (values
    ('aa_tenant', 'id'), ('aa_tenant', 'metadata'),
    ('aa_principal', 'id'), ('aa_principal', 'name'), ('aa_principal', 'role_name'),
    ('aa_principal_tenant', 'principal_id'), ('aa_principal_tenant', 'tenant_id'),
    ('aa_audit_log', 'occurred_at'), ('aa_audit_log', 'action'), ('aa_audit_log', 'actor_principal_id'),
    ('aa_audit_log', 'session_role'), ('aa_audit_log', 'tenant_id'), ('aa_audit_log', 'object_type'),
    ('aa_audit_log', 'object_id'), ('aa_audit_log', 'payload'),
    ('ddm_entity_type', 'id'), ('ddm_entity_type', 'type_key'),
    ('ddm_entity_type_attribute', 'entity_type_id'), ('ddm_entity_type_attribute', 'attribute_key'),
    ('ddm_entity_type_attribute', 'searchable'), ('ddm_entity_type_attribute', 'sortable'),
    ('ddm_entity_type_attribute', 'data_type'), ('ddm_entity_type_attribute', 'index_status'),
    ('ddm_entity_type_attribute', 'index_error'),
    ('ddm_entity_type', 'is_external_source_target'), ('ddm_entity_type', 'gin_index_status'),
    ('ddm_attachment', 'id'), ('ddm_attachment', 'tenant_id'), ('ddm_attachment', 'storage_key'),
    ('ddm_attachment', 'size_bytes'), ('ddm_attachment', 'virus_scan_status'),
    ('ddm_attachment', 'virus_scan_result'), ('ddm_attachment', 'scanned_at'),
    ('ddm_entity', 'id'), ('ddm_entity', 'tenant_id'), ('ddm_entity', 'entity_type_id'), ('ddm_entity', 'attributes'),
    ('ddm_entity', 'search_vector'),
    ('aa_email_log', 'id'), ('aa_email_log', 'tenant_id'), ('aa_email_log', 'job_id'), ('aa_email_log', 'recipient'), ('aa_email_log', 'subject'),
    ('aa_email_log', 'status'), ('aa_email_log', 'provider'), ('aa_email_log', 'provider_message_id'),
    ('aa_email_log', 'error'), ('aa_email_log', 'refused'), ('aa_email_log', 'unknown_sends'), ('aa_email_log', 'sent_at'),
    ('aa_email_suppression', 'tenant_id'), ('aa_email_suppression', 'address'),
    ('ddm_entity_type_attribute', 'required'),
    ('ddm_entity_type_attribute', 'reference_type_id'),
    ('ddm_entity', 'entity_key'), ('ddm_entity', 'updated_at'),
    ('aa_import', 'id'), ('aa_import', 'tenant_id'), ('aa_import', 'entity_type_id'), ('aa_import', 'status'),
    ('aa_import', 'error'), ('aa_import', 'rows_total'), ('aa_import', 'rows_imported'), ('aa_import', 'rows_rejected'),
    ('aa_import', 'last_row_no'), ('aa_import', 'report'), ('aa_import', 'completed_at'),
    ('aa_import_row', 'import_id'), ('aa_import_row', 'row_no'), ('aa_import_row', 'entity_key'),
    ('aa_import_row', 'attributes'), ('aa_import_row', 'status'), ('aa_import_row', 'error'), ('aa_import_row', 'entity_id'),
    ('aa_outbox_event', 'id'), ('aa_outbox_event', 'tenant_id'), ('aa_outbox_event', 'event_type'),
    ('aa_outbox_event', 'object_type'), ('aa_outbox_event', 'object_id'), ('aa_outbox_event', 'payload'),
    ('aa_outbox_event', 'created_at'), ('aa_outbox_event', 'planned_at'), ('aa_outbox_event', 'dispatched_at'),
    ('aa_webhook_endpoint', 'id'), ('aa_webhook_endpoint', 'tenant_id'), ('aa_webhook_endpoint', 'url'),
    ('aa_webhook_endpoint', 'secret'), ('aa_webhook_endpoint', 'event_types'), ('aa_webhook_endpoint', 'enabled'),
    ('aa_webhook_endpoint', 'failures'), ('aa_webhook_endpoint', 'paused_until'),
    ('aa_webhook_delivery', 'event_id'), ('aa_webhook_delivery', 'endpoint_id'), ('aa_webhook_delivery', 'status'),
    ('aa_webhook_delivery', 'attempts'), ('aa_webhook_delivery', 'available_at'), ('aa_webhook_delivery', 'job_id'),
    ('aa_webhook_delivery', 'lease_no'), ('aa_webhook_delivery', 'response_status'),
    ('aa_webhook_delivery', 'last_error'), ('aa_webhook_delivery', 'completed_at')
  ) as r (table_name, column_name)
  where not exists (
    select
    from pg_catalog.pg_attribute a
    where a.attrelid = to_regclass('mdm.' || r.table_name)
      and a.attname = r.column_name
      and not a.attisdropped);
  if v_missing is not null then
    raise exception 'the platform''s tables miss columns that mdm jobs needs: %', v_missing
      using errcode = 'undefined_column', hint = 'Add them to the platform''s tables, then migrate again.';
  end if;
end
$$;
