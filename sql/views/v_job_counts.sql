-- How many jobs of each kind stand where: the first look of an operator. Each count reads a partial index.
create or replace view mdm.v_job_counts as
select k.job_kind,
  mdm.count_jobs(k.job_kind, 'due') as due,
  mdm.count_jobs(k.job_kind, 'later') as later,
  mdm.count_jobs(k.job_kind, 'running') as running,
  mdm.count_jobs(k.job_kind, 'done') as done,
  mdm.count_jobs(k.job_kind, 'failed') as failed,
  mdm.count_jobs(k.job_kind, 'dlq') as dlq,
  case
    when not k.enabled then 'disabled'
    when k.paused_until > clock_timestamp() then 'paused'
    else 'open'
  end as state
from mdm.aa_job_kind k
order by k.job_kind;

comment on view mdm.v_job_counts is 'Jobs of each kind by where they stand.';
comment on column mdm.v_job_counts.job_kind is 'The kind.';
comment on column mdm.v_job_counts.due is 'Pending and due now.';
comment on column mdm.v_job_counts.later is 'Pending, not due yet (retries, scheduled).';
comment on column mdm.v_job_counts.running is 'Claimed by a worker.';
comment on column mdm.v_job_counts.done is 'Done and not purged yet.';
comment on column mdm.v_job_counts.failed is 'Stopped by hand (S5.4).';
comment on column mdm.v_job_counts.dlq is 'Dead (S5.3); see mdm.v_job_dlq.';
comment on column mdm.v_job_counts.state is 'open, paused (not claimed) or disabled (not enqueued).';
