-- The gauges of S12.1, from one read that a runner caches (D18): every instance exports the same values.
create or replace function mdm.job_metrics()
returns table (metric text, tenant_id uuid, job_kind text, value double precision)
language sql
stable
parallel safe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
-- starting a worker takes longer than reading what there is
set max_parallel_workers_per_gather = 0
as $$
  select 'mdm_jobs_pending', j.tenant_id, j.job_kind, count(*)::double precision
  from mdm.aa_job j
  where j.status = 'pending'
  group by j.tenant_id, j.job_kind
  union all
  select 'mdm_jobs_running', j.tenant_id, j.job_kind, count(*)::double precision
  from mdm.aa_job j
  where j.status = 'running'
  group by j.tenant_id, j.job_kind
  union all
  select 'mdm_jobs_dlq', j.tenant_id, j.job_kind, count(*)::double precision
  from mdm.aa_job j
  where j.status in ('dlq', 'failed')
    and j.status = 'dlq'
  group by j.tenant_id, j.job_kind
  union all
  select 'mdm_jobs_oldest_due_seconds', null, k.job_kind,
    greatest(0, extract(epoch from clock_timestamp() - mdm.oldest_due(k.job_kind)))::double precision
  from mdm.aa_job_kind k
  union all
  select 'mdm_jobs_live_runners', null, k.job_kind, (
    select count(*)
    from mdm.aa_job_runner r
    where r.expires_at > clock_timestamp()
      and k.job_kind = any (r.kinds))::double precision
  from mdm.aa_job_kind k
  union all
  select format('mdm_jobs_%s_age_seconds', u.part), null, null,
    extract(epoch from clock_timestamp() - u.last_at)::double precision
  from mdm.aa_job_upkeep u
  union all
  select 'mdm_jobs_violations', null, null, coalesce(sum(v.violations), 0)::double precision
  from mdm.aa_job_violation v
  where v.found_at > clock_timestamp() - interval '24 hours';
$$;

comment on function mdm.job_metrics() is
  'Gauges for exporters (S12.1): mdm_jobs_pending, mdm_jobs_running, mdm_jobs_dlq per tenant and kind (a pair that has none gives no row), mdm_jobs_oldest_due_seconds per kind (0 = nothing due), mdm_jobs_live_runners per kind, mdm_jobs_recover_age_seconds and the like for purge, compact and invariants (no row before the first run), mdm_jobs_violations (what the cleanup found to break an invariant within 24 hours). Every exporter gives the same values: aggregate with max.';
