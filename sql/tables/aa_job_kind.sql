-- Registry of job kinds and every setting of a kind (D14); kinds are disabled, never deleted. Changed by mdm.set_job_kind.
create table if not exists mdm.aa_job_kind (
  job_kind text primary key,
  description text not null default '',
  -- S6.2
  base_delay interval not null default '30 seconds',
  max_delay interval not null default '24 hours',
  jitter double precision not null default 0.1,
  max_attempts int not null default 10,
  priority int not null default 100,
  -- S8.1
  stale_ttl interval not null default '15 minutes',
  handler_timeout interval,
  -- D22
  retention_done interval default '168 hours',
  retention_dlq interval,
  retention_failed interval,
  audit_level text not null default 'full',
  tenant_required boolean not null default false,
  redact text[] not null default '{}',
  paused_until timestamptz,
  paused_reason text,
  enabled boolean not null default true,
  constraint aa_job_kind_name_check check (job_kind ~ '^[a-z][a-z0-9_.:-]{0,62}$'),
  -- intervals are hours or seconds, never days or months: a calendar day is not always 24 hours (D7)
  constraint aa_job_kind_delay_check check (
    base_delay > '0' and base_delay <= max_delay and max_delay <= '87600 hours'
    and extract(day from base_delay) = 0 and extract(month from base_delay) = 0
    and extract(day from max_delay) = 0 and extract(month from max_delay) = 0),
  constraint aa_job_kind_jitter_check check (jitter >= 0 and jitter <= 1),
  constraint aa_job_kind_max_attempts_check check (max_attempts >= 1),
  -- D5
  constraint aa_job_kind_stale_ttl_check check (
    stale_ttl >= '15 seconds' and stale_ttl <= '87600 hours'
    and extract(day from stale_ttl) = 0 and extract(month from stale_ttl) = 0),
  -- what lies before the calendar's beginning cannot be computed, and would stop the purge of all kinds
  constraint aa_job_kind_retention_check check (
    retention_done <= '876000 hours' and retention_dlq <= '876000 hours' and retention_failed <= '876000 hours'),
  constraint aa_job_kind_handler_timeout_check check (handler_timeout > '0' and handler_timeout <= '87600 hours'),
  constraint aa_job_kind_audit_level_check check (audit_level in ('full', 'exceptions'))
);

comment on table mdm.aa_job_kind is 'Registry of job kinds with every per-kind setting (D14). Change it with mdm.set_job_kind; kinds are disabled, never deleted.';
comment on column mdm.aa_job_kind.job_kind is 'Name of the kind, for instance reindex (S2).';
comment on column mdm.aa_job_kind.description is 'What a job of this kind does, for people.';
comment on column mdm.aa_job_kind.base_delay is 'Backoff after the first failed attempt (S6).';
comment on column mdm.aa_job_kind.max_delay is 'Cap of the backoff, also of p_retry_after (S6, D8).';
comment on column mdm.aa_job_kind.jitter is 'Fraction of the delay that is added at random, 0 to 1 (D8).';
comment on column mdm.aa_job_kind.max_attempts is 'Claims that count before a job is dead (S5.3); a job can carry its own.';
comment on column mdm.aa_job_kind.priority is 'Default priority, the smaller goes first (S4.1).';
comment on column mdm.aa_job_kind.stale_ttl is 'Without a heartbeat for this long a running job is taken from its worker (S8, D5); at least 15 seconds.';
comment on column mdm.aa_job_kind.handler_timeout is 'Longest run of a handler, NULL = no limit; independent of stale_ttl (D5).';
comment on column mdm.aa_job_kind.retention_done is 'How long done jobs are kept, NULL or negative = for ever (D22).';
comment on column mdm.aa_job_kind.retention_dlq is 'How long dead jobs are kept, NULL or negative = for ever (D22).';
comment on column mdm.aa_job_kind.retention_failed is 'How long stopped jobs are kept, NULL or negative = for ever (D22).';
comment on column mdm.aa_job_kind.audit_level is 'full, or exceptions: no job_enqueued and no job_done rows (D15).';
comment on column mdm.aa_job_kind.tenant_required is 'Whether a job of this kind must name a tenant (D14).';
comment on column mdm.aa_job_kind.redact is 'Payload keys whose values are hidden in views and audit snapshots.';
comment on column mdm.aa_job_kind.paused_until is 'Not claimed before this time; infinity = until resumed, NULL = not paused.';
comment on column mdm.aa_job_kind.paused_reason is 'Why it is paused, for people.';
comment on column mdm.aa_job_kind.enabled is 'false: enqueue answers MJ003, what is queued is still worked off (D14).';
