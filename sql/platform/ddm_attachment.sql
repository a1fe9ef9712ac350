-- Stand-in for the platform's attachments (D20): files that a client uploads through a pre-signed URL and virus_scan looks at (S2.6).
do $$
begin
  if to_regclass('mdm.ddm_attachment') is not null then
    return;
  end if;

  create table mdm.ddm_attachment (
    id uuid primary key default gen_random_uuid(),
    tenant_id uuid not null references mdm.aa_tenant (id),
    entity_id uuid references mdm.ddm_entity (id) on delete cascade,
    file_name text not null default '',
    content_type text not null default 'application/octet-stream',
    size_bytes bigint not null default 0,
    storage_key text not null,
    virus_scan_status mdm.virus_scan_status not null default 'pending',
    virus_scan_result text,
    scanned_at timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    constraint ddm_attachment_size_check check (size_bytes >= 0)
  );

  -- the foreign keys
  create index ix_ddm_attachment_tenant on mdm.ddm_attachment (tenant_id);
  create index ix_ddm_attachment_entity on mdm.ddm_attachment (entity_id) where entity_id is not null;

  comment on table mdm.ddm_attachment is 'Attachments of entities (a stand-in where the platform brings none, D20).';
  comment on column mdm.ddm_attachment.id is 'The attachment.';
  comment on column mdm.ddm_attachment.tenant_id is 'The tenant that it belongs to.';
  comment on column mdm.ddm_attachment.entity_id is 'The entity that it hangs on, NULL = none yet.';
  comment on column mdm.ddm_attachment.file_name is 'Name that the client gave.';
  comment on column mdm.ddm_attachment.content_type is 'Media type that the client gave.';
  comment on column mdm.ddm_attachment.size_bytes is 'Size of the content in bytes.';
  comment on column mdm.ddm_attachment.storage_key is 'Where the content lies in the object store.';
  comment on column mdm.ddm_attachment.virus_scan_status is 'What the scan said (S2.6); served to nobody unless clean.';
  comment on column mdm.ddm_attachment.virus_scan_result is 'Name of what was found, or why there is no result.';
  comment on column mdm.ddm_attachment.scanned_at is 'When the result came.';
  comment on column mdm.ddm_attachment.created_at is 'When the upload was committed.';
end
$$;
