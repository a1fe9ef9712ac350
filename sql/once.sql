-- What has state, in order. Each part stands on its own (a migration applies one part) and sets the role that owns what it makes.

-- [schema]
\ir roles/as_installer.sql
\ir schema.sql
\ir roles.sql

-- [types]
\ir roles/as_owner.sql
\ir types/job_status.sql
\ir types/_job_request.sql
\ir types/_lane.sql
\ir roles/as_installer.sql
\ir types/audit_action.sql

-- [platform]
\ir roles/as_installer.sql
\ir platform/references.sql
\ir roles/as_platform.sql
\ir platform/aa_tenant.sql
\ir platform/aa_principal.sql
\ir platform/aa_principal_tenant.sql
\ir platform/aa_audit_log.sql
\ir platform/index_status.sql
\ir platform/virus_scan_status.sql
\ir platform/email_status.sql
\ir platform/import_status.sql
\ir platform/import_row_status.sql
\ir platform/webhook_delivery_status.sql
\ir platform/ddm_entity_type.sql
\ir platform/ddm_entity_type_attribute.sql
\ir platform/ddm_entity.sql
\ir platform/ddm_attachment.sql
\ir platform/aa_email_log.sql
\ir platform/aa_email_suppression.sql
\ir platform/aa_import.sql
\ir platform/aa_import_row.sql
\ir platform/aa_outbox_event.sql
\ir platform/aa_webhook_endpoint.sql
\ir platform/aa_webhook_delivery.sql
\ir platform/requirements.sql
\ir roles/as_installer.sql

-- [tables]
\ir roles/as_owner.sql
\ir tables/aa_job_kind.sql
\ir tables/aa_job.sql
\ir tables/aa_job_runner.sql
\ir tables/aa_job_upkeep.sql
\ir tables/aa_job_violation.sql
\ir tables/aa_reindex_progress.sql
\ir tables/aa_schema_object.sql
\ir roles/as_installer.sql

-- [indexes]
\ir roles/as_owner.sql
\ir indexes/aa_job.sql
\ir roles/as_installer.sql

-- [seed]
\ir roles/as_owner.sql
\ir seed/aa_job_kind.sql
\ir roles/as_installer.sql
\ir seed/aa_principal.sql
