-- How many jobs of each kind stand where: the first look of an operator. Each count reads a partial index.
create or replace view mdm.v_job_counts as
select k.job_kind,
  (select count(*) from mdm.aa_job j where j.status = 'pending' and j.job_kind = k.job_kind and j.available_at <= clock_timestamp()) as due,
  (select count(*) from mdm.aa_job j where j.status = 'pending' and j.job_kind = k.job_kind and j.available_at > clock_timestamp()) as later,
  (select count(*) from mdm.aa_job j where j.status = 'running' and j.job_kind = k.job_kind) as running,
  (select count(*) from mdm.aa_job j where j.status = 'done' and j.job_kind = k.job_kind) as done,
  (select count(*) from mdm.aa_job j where j.status in ('dlq', 'failed') and j.status = 'failed' and j.job_kind = k.job_kind) as failed,
  (select count(*) from mdm.aa_job j where j.status in ('dlq', 'failed') and j.status = 'dlq' and j.job_kind = k.job_kind) as dlq,
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
