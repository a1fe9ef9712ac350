-- One job's life as a timeline: its audit rows, and what its row says now. Ask with a job_id: the audit is searched anew for each job.
create or replace view mdm.v_job_history as
select h.job_id, date_trunc('second', h.at) as at, h.event, h.actor, h.session_role, h.detail
from (
  select j.id as job_id, a.occurred_at as at, a.action::text as event, p.name as actor, a.session_role,
    nullif(a.payload - 'job_kind', '{}')::text as detail, 1 as place
  from mdm.aa_job j
  cross join lateral mdm.find_entries(j.id) a
  left join mdm.aa_principal p on p.id = a.actor_principal_id
  union all
  select j.id, coalesce(j.completed_at, j.heartbeat_at, j.claimed_at, j.available_at), 'is ' || j.status, null, null,
    concat_ws(', ',
      format('attempt %s of %s', j.attempts, j.max_attempts),
      'worker ' || j.claimed_by,
      nullif(j.recoveries, 0) || ' recoveries',
      nullif(j.releases, 0) || ' releases',
      j.last_error), 2
  from mdm.aa_job j) h
order by h.job_id, h.place, h.at;

comment on view mdm.v_job_history is 'A job''s audit rows and its present state, in order; ask with where job_id = ... . A discarded or purged job has only its audit rows left.';
comment on column mdm.v_job_history.job_id is 'The job.';
comment on column mdm.v_job_history.at is 'When, to the second; for the present state the time it refers to (end, last sign of life, or due).';
comment on column mdm.v_job_history.event is 'The audited action, or "is <status>" for the present state.';
comment on column mdm.v_job_history.actor is 'Principal said to have acted (D11).';
comment on column mdm.v_job_history.session_role is 'Login that acted (D11).';
comment on column mdm.v_job_history.detail is 'Payload of the audit row, or counters and last_error.';
