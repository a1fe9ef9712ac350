-- The jobs (S4, S5). Written only by the functions of this schema: a transition is visible in the function that makes it, so there
-- is no trigger here, and no foreign key in either direction (D14; discard and purge delete rows).
-- fillfactor leaves room for the versions of one run (claim, heartbeats, finish) on the same page, so that heartbeats stay HOT.
create table if not exists mdm.aa_job (
  id bigint generated always as identity primary key,
  tenant_id uuid,
  job_kind text not null,
  status mdm.job_status not null default 'pending',
  priority int not null,
  available_at timestamptz not null default clock_timestamp(),
  payload jsonb not null default '{}',
  context jsonb,
  attempts int not null default 0,
  max_attempts int not null,
  idempotency_key text,
  key_no int not null default 0,
  lease_no bigint,
  claimed_by text,
  claimed_at timestamptz,
  heartbeat_at timestamptz,
  claimed_together int,
  run_alone boolean not null default false,
  releases int not null default 0,
  recoveries int not null default 0,
  last_error text,
  created_at timestamptz not null default clock_timestamp(),
  completed_at timestamptz,
  constraint aa_job_running_check check (
    status <> 'running' or (claimed_by is not null and claimed_at is not null and lease_no is not null)),
  constraint aa_job_pending_check check (
    status <> 'pending' or (claimed_by is null and claimed_at is null and heartbeat_at is null)),
  constraint aa_job_completed_at_check check ((completed_at is not null) = (status in ('done', 'dlq', 'failed'))),
  constraint aa_job_payload_check check (jsonb_typeof(payload) = 'object'),
  constraint aa_job_attempts_check check (attempts >= 0),
  constraint aa_job_max_attempts_check check (max_attempts >= 1),
  constraint aa_job_idempotency_key_check check (octet_length(idempotency_key) between 1 and 255)
) with (
  fillfactor = 85,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 0
);

-- A login that is bound to tenants sees and writes their jobs only, in definer functions and views too: session_user is the login
-- wherever the code runs, and FORCE binds the owner (design 3). The bound list is read once per statement. A nil uuid is no tenant;
-- it stands for the platform's own jobs, which a bound login does not see.
alter table mdm.aa_job enable row level security;
alter table mdm.aa_job force row level security;
drop policy if exists aa_job_tenant on mdm.aa_job;
create policy aa_job_tenant on mdm.aa_job
  using (coalesce(
    coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid) = any ((
      select array_agg(pt.tenant_id)
      from mdm.aa_principal p
      join mdm.aa_principal_tenant pt on pt.principal_id = p.id
      where p.role_name = session_user)::uuid[]),
    true));

comment on table mdm.aa_job is 'Jobs of the platform (S1): mandatory asynchronous work. Enqueue with mdm.enqueue_job, never by insert.';
comment on column mdm.aa_job.id is 'The job.';
comment on column mdm.aa_job.tenant_id is 'Tenant that the job works for, NULL = a job of the platform itself (D1).';
comment on column mdm.aa_job.job_kind is 'What is to be done (S2); a name out of mdm.aa_job_kind.';
comment on column mdm.aa_job.status is 'Where it stands in its life cycle (S5).';
comment on column mdm.aa_job.priority is 'The smaller goes first (S4.1).';
comment on column mdm.aa_job.available_at is 'Not claimed before this time (S4.1, S5.2).';
comment on column mdm.aa_job.payload is 'Arguments of the work, a JSON object.';
comment on column mdm.aa_job.context is 'traceparent and the like: carried, never interpreted.';
comment on column mdm.aa_job.attempts is 'Claims that count (S4.1, D4): releases give theirs back, recoveries do not add one (S8.3).';
comment on column mdm.aa_job.max_attempts is 'Attempts after which a failure is final (S5.3).';
comment on column mdm.aa_job.idempotency_key is 'Key of the producer, unique per tenant and kind while the row lives (S10.1, D6); 1 to 255 bytes.';
comment on column mdm.aa_job.key_no is 'Generation of the key: an update that meets a job which is not pending makes the next one (D6).';
comment on column mdm.aa_job.lease_no is 'Random number of the claim; whoever shows it may end the claim (D2). NULL after recovery and replay.';
comment on column mdm.aa_job.claimed_by is 'worker_id of the last claim, <host>/<pid>/<uuid> (S3.2); NULL while pending.';
comment on column mdm.aa_job.claimed_at is 'Time of the last claim; NULL while pending.';
comment on column mdm.aa_job.heartbeat_at is 'Last sign of life of the worker (D5); NULL before the first.';
comment on column mdm.aa_job.claimed_together is 'How many rows the last claim call took; 2 also when another slot of its process went silent at the same time (D3).';
comment on column mdm.aa_job.run_alone is 'Claimed and run alone from now on, because it was one of several jobs whose worker died (D3).';
comment on column mdm.aa_job.releases is 'Times a worker gave it back without running it to an end (D4).';
comment on column mdm.aa_job.recoveries is 'Times it was taken from a dead worker (S8).';
comment on column mdm.aa_job.last_error is 'Text of the last failure or recovery, at most 8,192 bytes (S5.2, D9).';
comment on column mdm.aa_job.created_at is 'Time of the enqueue.';
comment on column mdm.aa_job.completed_at is 'Time of the end; set exactly in done, dlq and failed.';
