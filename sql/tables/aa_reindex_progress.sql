-- How far each reindex has come (S2.3, D24): a chunk writes its position in the transaction that rebuilds its rows, so a crash
-- resumes behind the last chunk that was committed. A row goes with its job (mdm._forget_progress); nothing references aa_job (model).
create table if not exists mdm.aa_reindex_progress (
  job_id bigint primary key,
  scope_digest text not null,
  waits_for text[] not null default '{}',
  tenant_id uuid,
  entity_type_id uuid,
  entity_id uuid,
  rows_rebuilt bigint not null default 0,
  rows_changed bigint not null default 0,
  chunks int not null default 0,
  started_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  constraint aa_reindex_progress_position_check check (num_nulls(tenant_id, entity_type_id, entity_id) in (0, 3))
);

comment on table mdm.aa_reindex_progress is 'Position and counts of each reindex job; kept until the job is purged, discarded or replayed.';
comment on column mdm.aa_reindex_progress.job_id is 'The job.';
comment on column mdm.aa_reindex_progress.scope_digest is
  'Digest of what is rebuilt: tenant, type and searchable attributes. When it changes, the pass starts anew.';
comment on column mdm.aa_reindex_progress.waits_for is
  'Transactions that wrote to ddm_entity when the pass began; it starts when they have ended, empty = it has started.';
comment on column mdm.aa_reindex_progress.tenant_id is 'Tenant of the last row rebuilt, NULL = none yet.';
comment on column mdm.aa_reindex_progress.entity_type_id is 'Type of the last row rebuilt.';
comment on column mdm.aa_reindex_progress.entity_id is 'The last row rebuilt: the next chunk begins behind it.';
comment on column mdm.aa_reindex_progress.rows_rebuilt is 'Rows of this pass whose vector was computed and is right.';
comment on column mdm.aa_reindex_progress.rows_changed is 'Those of them whose vector had been another one and was written.';
comment on column mdm.aa_reindex_progress.chunks is 'Chunks committed in this pass.';
comment on column mdm.aa_reindex_progress.started_at is 'When this pass began.';
comment on column mdm.aa_reindex_progress.updated_at is 'When the last chunk was written.';
