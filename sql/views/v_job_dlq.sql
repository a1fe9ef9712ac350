-- The dead letter queue (S9.1), newest first.
create or replace view mdm.v_job_dlq as
select j.id, j.job_kind, j.tenant_id, j.attempts, j.max_attempts, j.completed_at, j.last_error,
  mdm._redact(j.payload, coalesce(k.redact, '{}')) as payload,
  j.priority, j.idempotency_key, j.context, j.claimed_by, j.recoveries, j.created_at
from mdm.aa_job j
left join mdm.aa_job_kind k on k.job_kind = j.job_kind
where j.id = any (array(select f.id from mdm.find_jobs('dlq') f (id)))
order by j.completed_at desc, j.id desc;

comment on view mdm.v_job_dlq is 'Dead jobs (S9.1), newest first. Bring one back with mdm.replay_job(id), delete one with mdm.discard_job(id).';
comment on column mdm.v_job_dlq.id is 'The job.';
comment on column mdm.v_job_dlq.job_kind is 'What was to be done.';
comment on column mdm.v_job_dlq.tenant_id is 'Tenant, NULL = the platform.';
comment on column mdm.v_job_dlq.attempts is 'Attempts it had.';
comment on column mdm.v_job_dlq.max_attempts is 'Attempts it was allowed.';
comment on column mdm.v_job_dlq.completed_at is 'When it died.';
comment on column mdm.v_job_dlq.last_error is 'Why it died.';
comment on column mdm.v_job_dlq.payload is 'Its arguments; keys that the kind lists in redact are hidden.';
comment on column mdm.v_job_dlq.priority is 'Its priority.';
comment on column mdm.v_job_dlq.idempotency_key is 'Key of the producer.';
comment on column mdm.v_job_dlq.context is 'Trace context of the producer.';
comment on column mdm.v_job_dlq.claimed_by is 'Worker of the last attempt.';
comment on column mdm.v_job_dlq.recoveries is 'Times it was taken from a dead worker.';
comment on column mdm.v_job_dlq.created_at is 'When it was enqueued.';
