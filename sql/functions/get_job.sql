-- The state of a job for the producer's own UI, without its payload.
create or replace function mdm.get_job(p_job_id bigint)
returns table (
  job_id bigint,
  job_kind text,
  tenant_id uuid,
  status mdm.job_status,
  attempts int,
  max_attempts int,
  available_at timestamptz,
  created_at timestamptz,
  completed_at timestamptz,
  last_error text)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
as $$
  select j.id, j.job_kind, j.tenant_id, j.status, j.attempts, j.max_attempts, j.available_at, j.created_at, j.completed_at, j.last_error
  from mdm.aa_job j
  where j.id = p_job_id;
$$;

comment on function mdm.get_job(bigint) is 'State of a job without its payload; no row when it does not exist or has been purged.';
