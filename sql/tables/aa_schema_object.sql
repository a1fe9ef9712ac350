-- What the migrator loaded last, so that it can say what an upgrade changes. Nobody else reads it.
create table if not exists mdm.aa_schema_object (
  path text not null primary key,
  sha256 text not null,
  loaded_at timestamptz not null default clock_timestamp()
);

comment on table mdm.aa_schema_object is 'The files that `jobrunner migrate` loads every time (sql/always.sql), as they were loaded last.';
comment on column mdm.aa_schema_object.path is 'The file below sql/.';
comment on column mdm.aa_schema_object.sha256 is 'Hash of its text, in hex.';
comment on column mdm.aa_schema_object.loaded_at is 'When this text was loaded for the first time.';
