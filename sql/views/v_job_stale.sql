-- Running jobs that recovery should have taken, and who stands in its way: recovery skips a row that a session holds.
create or replace view mdm.v_job_stale as
select r.id, r.job_kind, r.tenant_id, r.claimed_by, r.silent_for, r.stale_ttl,
  h.pid as held_by_pid,
  a.state as held_state,
  date_trunc('second', clock_timestamp() - a.xact_start) as held_for
from mdm.v_job_running r
join mdm.aa_job j on j.id = r.id
left join lateral mdm.find_holders(j.xmax) h (pid) on true
left join pg_catalog.pg_stat_activity a on a.pid = h.pid
where r.silent_for > r.stale_ttl
order by r.silent_for desc;

comment on view mdm.v_job_stale is 'Running jobs past their stale_ttl; held_by_pid names the session whose lock keeps recovery off (end it with pg_terminate_backend). A row for each such session.';
comment on column mdm.v_job_stale.id is 'The job.';
comment on column mdm.v_job_stale.job_kind is 'What it does.';
comment on column mdm.v_job_stale.tenant_id is 'Tenant, NULL = the platform.';
comment on column mdm.v_job_stale.claimed_by is 'Worker that went silent.';
comment on column mdm.v_job_stale.silent_for is 'Time since the last sign of life.';
comment on column mdm.v_job_stale.stale_ttl is 'What the kind allows.';
comment on column mdm.v_job_stale.held_by_pid is 'Backend that holds the row, NULL = nobody: the next recovery takes it.';
comment on column mdm.v_job_stale.held_state is 'What that backend does, for instance idle in transaction.';
comment on column mdm.v_job_stale.held_for is 'How long its transaction has been open.';
