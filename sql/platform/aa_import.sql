-- Stand-in for the platform's uploads (D20): one row a file that bulk_import brings into ddm_entity (S2.2).
do $$
begin
  if to_regclass('mdm.aa_import') is not null then
    return;
  end if;

  create table mdm.aa_import (
    id uuid primary key default gen_random_uuid(),
    tenant_id uuid not null references mdm.aa_tenant (id),
    entity_type_id uuid not null references mdm.ddm_entity_type (id),
    file_name text not null default '',
    status mdm.import_status not null default 'pending',
    error text,
    rows_total int,
    rows_imported int not null default 0,
    rows_rejected int not null default 0,
    last_row_no int not null default 0,
    report jsonb,
    created_at timestamptz not null default clock_timestamp(),
    completed_at timestamptz,
    constraint aa_import_completed_check check ((status in ('done', 'failed')) = (completed_at is not null))
  );

  -- the foreign keys
  create index ix_aa_import_tenant on mdm.aa_import (tenant_id);
  create index ix_aa_import_entity_type on mdm.aa_import (entity_type_id);

  comment on table mdm.aa_import is 'Uploads for bulk_import (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_import.id is 'The upload; the job''s payload names it.';
  comment on column mdm.aa_import.tenant_id is 'The tenant that gets the entities.';
  comment on column mdm.aa_import.entity_type_id is 'Their type.';
  comment on column mdm.aa_import.file_name is 'Name of the file that was uploaded.';
  comment on column mdm.aa_import.status is 'How far it came.';
  comment on column mdm.aa_import.error is 'Why it failed as a whole; a bad row has its own error.';
  comment on column mdm.aa_import.rows_total is 'Rows that this pass began with, NULL = it has not begun.';
  comment on column mdm.aa_import.rows_imported is 'Rows of this pass that are in ddm_entity.';
  comment on column mdm.aa_import.rows_rejected is 'Rows of this pass that were rejected; each says why.';
  comment on column mdm.aa_import.last_row_no is 'The last row that was decided: the next chunk begins behind it.';
  comment on column mdm.aa_import.report is 'What people want to know at the end: rows, imported, rejected, and errors (error, rows, first_row), the most frequent 20.';
  comment on column mdm.aa_import.created_at is 'When it was uploaded.';
  comment on column mdm.aa_import.completed_at is 'When it ended; set exactly in done and failed.';
end
$$;
