-- Why is this job not running? Every reason that holds, for operators.
create or replace function mdm.explain_job(p_job_id bigint)
returns table (reason text, detail text, until timestamptz)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_job mdm.aa_job;
  v_kind mdm.aa_job_kind;
begin
  select j.* into v_job from mdm.aa_job j where j.id = p_job_id;
  if not found then
    perform mdm._raise('MJ002', format('no job %s', coalesce(p_job_id::text, 'NULL')),
      'It never existed, was discarded, or was purged after its retention.', 'Look for it in the audit log by object_id.');
  end if;
  select k.* into v_kind from mdm.aa_job_kind k where k.job_kind = v_job.job_kind;

  if v_job.status <> 'pending' then
    return query
      select s.reason, s.detail, s.until
      from (values
        ('running'::mdm.job_status, 'running', format('lease held by %s since %s', v_job.claimed_by, date_trunc('second', v_job.claimed_at)),
          coalesce(v_job.heartbeat_at, v_job.claimed_at) + v_kind.stale_ttl),
        ('done', 'finished', coalesce(v_job.last_error, format('done at %s', date_trunc('second', v_job.completed_at))), null),
        ('failed', 'stopped', coalesce(v_job.last_error, format('stopped at %s', date_trunc('second', v_job.completed_at))), null),
        ('dlq', 'dead', format('%s of %s attempts: %s', v_job.attempts, v_job.max_attempts, v_job.last_error), null)
      ) s (status, reason, detail, until)
      where s.status = v_job.status;
    return;
  end if;

  if v_job.available_at > v_now then
    return query select 'not due'::text,
      case when v_job.attempts > 0 then format('waits after attempt %s of %s: %s', v_job.attempts, v_job.max_attempts, v_job.last_error)
        when v_job.releases > 0 then format('given back %s: %s', case v_job.releases when 1 then 'once' else v_job.releases || ' times' end,
          coalesce(v_job.last_error, 'rate limit or shutdown'))
        else 'scheduled' end,
      v_job.available_at;
  end if;
  if v_kind.paused_until > v_now then
    return query select 'kind paused'::text, coalesce(v_kind.paused_reason, 'no reason given'),
      nullif(v_kind.paused_until, 'infinity');
  end if;
  if not exists (select from mdm.aa_job_runner r where r.expires_at > v_now and v_job.job_kind = any (r.kinds)) then
    return query select 'no live runner'::text, format('no runner has announced itself for kind %s', v_job.job_kind), null::timestamptz;
  elsif not exists (
    select
    from mdm.aa_job_runner r
    where r.expires_at > v_now
      and v_job.job_kind = any (r.kinds)
      and (r.tenant_ids is null or v_job.tenant_id = any (r.tenant_ids)))
  then
    return query select 'no live runner'::text,
      format('the runners for kind %s serve other tenants than %s', v_job.job_kind, coalesce(v_job.tenant_id::text, 'the platform')),
      null::timestamptz;
  end if;
  if v_job.available_at <= v_now then
    return query select case b.jobs when 0 then 'next in line' else 'behind others' end,
      case
        when b.jobs = 0 then 'no due job of its kind goes first'
        when b.jobs = 1 then '1 due job of its kind goes first'
        else format('%s%s due jobs of its kind go first', b.jobs, case when b.jobs = 1000 then ' or more' else '' end)
      end,
      null::timestamptz
    from (select mdm._jobs_ahead(v_job, v_now) as jobs) b;
  end if;
end
$$;

comment on function mdm.explain_job(bigint) is
  'Every reason why a job is not running: not due, kind paused, no live runner, behind others (counted to 1,000) or next in line, or running, finished, stopped, dead; until: when the reason ends, NULL where nobody knows. MJ002 no such job.';
