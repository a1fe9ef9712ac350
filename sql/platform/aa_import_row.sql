-- Stand-in for the platform's staging rows (D20): the rows of an upload, before and after bulk_import has taken them (S2.2).
do $$
begin
  if to_regclass('mdm.aa_import_row') is not null then
    return;
  end if;

  create table mdm.aa_import_row (
    import_id uuid not null references mdm.aa_import (id) on delete cascade,
    row_no int not null,
    entity_key text,
    attributes jsonb,
    status mdm.import_row_status not null default 'pending',
    error text,
    entity_id uuid references mdm.ddm_entity (id) on delete set null,
    primary key (import_id, row_no),
    constraint aa_import_row_no_check check (row_no >= 1)
  );

  -- the foreign key
  create index ix_aa_import_row_entity on mdm.aa_import_row (entity_id) where entity_id is not null;

  comment on table mdm.aa_import_row is 'Rows of the uploads (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_import_row.import_id is 'The upload.';
  comment on column mdm.aa_import_row.row_no is 'Place in the file, from 1.';
  comment on column mdm.aa_import_row.entity_key is 'Key of the entity as the file has it; nothing is checked before the job runs.';
  comment on column mdm.aa_import_row.attributes is 'Data of the entity as the file has it.';
  comment on column mdm.aa_import_row.status is 'What became of the row.';
  comment on column mdm.aa_import_row.error is 'Why it was rejected.';
  comment on column mdm.aa_import_row.entity_id is 'The entity that it made or changed.';
end
$$;
