-- When each part of the upkeep last ran to its end (D17): who heals must be watched (B12, B72).
create table if not exists mdm.aa_job_upkeep (
  part text primary key,
  last_at timestamptz not null,
  last_jobs int not null,
  last_id bigint,
  next_at timestamptz
) with (fillfactor = 50);

comment on table mdm.aa_job_upkeep is 'When recovery, retention, compaction and the look at the invariants last ran to their end; v_job_health warns when one is overdue.';
comment on column mdm.aa_job_upkeep.part is 'recover, purge, compact or invariants.';
comment on column mdm.aa_job_upkeep.last_at is 'End of its last run.';
comment on column mdm.aa_job_upkeep.last_jobs is 'Rows that it handled then; of invariants the violations that it found.';
comment on column mdm.aa_job_upkeep.last_id is 'Id of the job that the look at the invariants came to; NULL = it begins anew.';
comment on column mdm.aa_job_upkeep.next_at is 'No look at the invariants before this time.';
