-- The eight kinds of S2 with the settings of the data model; what a mail says is hidden from views and audit. Rows that exist stay as
-- the operators have set them.
insert into mdm.aa_job_kind (
  job_kind, description, base_delay, max_delay, max_attempts, priority, stale_ttl, retention_done, audit_level, tenant_required,
  redact)
values
  ('email_send', 'Send an email through the provider (S2.1)', '30 s', '24 h', 10, 50, '5 min', '720 h', 'full', true, '{text,html}'),
  ('bulk_import', 'Validate and commit the rows of an import (S2.2)', '60 s', '6 h', 5, 150, '60 min', '720 h', 'full', true, '{}'),
  ('reindex', 'Rebuild the search vectors of a tenant and type (S2.3)', '30 s', '6 h', 5, 120, '30 min', '168 h', 'full', false, '{}'),
  ('outbox_dispatch', 'Deliver pending events to webhook consumers (S2.4)', '10 s', '1 h', 10, 80, '5 min', '24 h', 'exceptions', false, '{}'),
  ('cleanup_jobs', 'Recovery, outbox compaction, retention (S2.5)', '30 s', '5 min', 3, 10, '10 min', '24 h', 'exceptions', false, '{}'),
  ('virus_scan', 'Scan an attachment (S2.6)', '30 s', '6 h', 8, 90, '10 min', '168 h', 'full', true, '{}'),
  ('index_sync', 'Create or drop the expression index of an attribute (S2.7)', '5 min', '6 h', 3, 200, '120 min', '720 h', 'full', false, '{}'),
  ('gin_backfill', 'Build the partial GIN index of an entity type (S2.8)', '5 min', '6 h', 3, 200, '240 min', '720 h', 'full', false, '{}')
on conflict (job_kind) do nothing;
