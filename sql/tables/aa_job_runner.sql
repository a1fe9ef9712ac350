-- Registry of live runner processes: who would like a NOTIFY (design 5.5), and whether anybody serves a kind. Unlogged: after a crash
-- the runners announce themselves again. Never evidence about a lease.
create unlogged table if not exists mdm.aa_job_runner (
  runner_id text primary key,
  kinds text[] not null,
  tenant_ids uuid[],
  hungry boolean not null default true,
  seen_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

comment on table mdm.aa_job_runner is 'Live runner processes (mdm.announce_runner). Tells enqueue whether a NOTIFY is wanted; says nothing about leases.';
comment on column mdm.aa_job_runner.runner_id is 'The process, <host>/<pid>/<uuid>.';
comment on column mdm.aa_job_runner.kinds is 'Kinds it serves.';
comment on column mdm.aa_job_runner.tenant_ids is 'Tenants it is restricted to, NULL = all (S3.3).';
comment on column mdm.aa_job_runner.hungry is 'Whether it waits for work: enqueue notifies only then.';
comment on column mdm.aa_job_runner.seen_at is 'Last announcement.';
comment on column mdm.aa_job_runner.expires_at is 'Counts as gone after this time.';
