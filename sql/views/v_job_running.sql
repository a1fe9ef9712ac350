-- What runs now, longest first.
create or replace view mdm.v_job_running as
select j.id, j.job_kind, j.tenant_id, j.attempts, j.claimed_by,
  date_trunc('second', clock_timestamp() - j.claimed_at) as running_for,
  date_trunc('second', clock_timestamp() - coalesce(j.heartbeat_at, j.claimed_at)) as silent_for,
  k.stale_ttl
from mdm.aa_job j
join mdm.aa_job_kind k on k.job_kind = j.job_kind
where j.id = any (array(select f.id from mdm.find_jobs('running') f (id)))
order by j.claimed_at;

comment on view mdm.v_job_running is 'Running jobs, the one that runs longest first.';
comment on column mdm.v_job_running.id is 'The job.';
comment on column mdm.v_job_running.job_kind is 'What it does.';
comment on column mdm.v_job_running.tenant_id is 'Tenant, NULL = the platform.';
comment on column mdm.v_job_running.attempts is 'The attempt that runs.';
comment on column mdm.v_job_running.claimed_by is 'Worker, <host>/<pid>/<uuid>.';
comment on column mdm.v_job_running.running_for is 'Time since the claim.';
comment on column mdm.v_job_running.silent_for is 'Time since the last sign of life.';
comment on column mdm.v_job_running.stale_ttl is 'Recovered when silent for longer (S8).';
