-- The indexes of mdm.aa_job, each with its reason.

-- Claim: one lane is (kind, priority), within it the order of S4.1. Equality on the first two, a range on the third (design 5.1).
create index if not exists ix_aa_job_claim on mdm.aa_job (job_kind, priority, available_at, id)
  where status = 'pending';

-- Claim of workers that are bound to tenants: one of 1,000 tenants in a million rows 164 ms without, 0.03 ms with it.
create index if not exists ix_aa_job_claim_tenant on mdm.aa_job (tenant_id, job_kind, priority, available_at, id)
  where status = 'pending' and tenant_id is not null;

-- Recovery and the views of running jobs. Never finish, fail or extend: those reach rows by id alone (design 5.3).
create index if not exists ix_aa_job_running on mdm.aa_job (job_kind, claimed_at)
  where status = 'running';

-- Idempotency (S10.1): one row per key and generation, NULL tenants equal (D6).
create unique index if not exists uq_aa_job_key on mdm.aa_job (tenant_id, job_kind, idempotency_key, key_no) nulls not distinct
  where idempotency_key is not null;

-- Retention of done jobs, oldest first per kind (D22). A BRIN would be cheaper to write, but after the first purges new rows share
-- pages with old ones and every range looks old.
create index if not exists ix_aa_job_done on mdm.aa_job (job_kind, completed_at)
  where status = 'done';

-- The dead letter queue (S9.1), counts of stopped jobs, and their retention; small beside the table. The time before the status: under
-- row-level security the equality of an enum is no index condition, it is not leakproof.
create index if not exists ix_aa_job_dead on mdm.aa_job (job_kind, completed_at, status)
  where status in ('dlq', 'failed');

comment on index mdm.ix_aa_job_claim is 'Serves claim_job: lanes of kind and priority in the order of S4.1.';
comment on index mdm.ix_aa_job_claim_tenant is 'Serves claim_job of workers bound to tenants (S3.3).';
comment on index mdm.ix_aa_job_running is 'Serves recover_stale_jobs and the views of running jobs.';
comment on index mdm.uq_aa_job_key is 'One row per idempotency key and generation (S10.1, D6).';
comment on index mdm.ix_aa_job_done is 'Serves purge_jobs (D22) and watch_invariants.';
comment on index mdm.ix_aa_job_dead is 'Serves v_job_dlq, purge_jobs and watch_invariants.';
