-- Enqueues many jobs in the caller's transaction. Jobs without a key go in with one statement, in the order given; jobs with a key
-- one by one in the order of tenant, kind and key, so that two callers meet each other's keys in the same order (design 3).
create or replace function mdm.enqueue_jobs(p_jobs jsonb, p_actor_principal_id uuid default null)
returns table (ord int, job_id bigint, outcome text)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_actor uuid := mdm._actor(p_actor_principal_id);
  v_jobs mdm._job_request[];
  v_job mdm._job_request;
begin
  v_jobs := mdm._parse_jobs(p_jobs);

  return query
    with request as materialized (
      select r.*, k.priority as kind_priority, k.max_attempts as kind_max_attempts, k.audit_level,
        row_number() over (order by r.ord) as place
      from unnest(v_jobs) r
      join mdm.aa_job_kind k on k.job_kind = r.job_kind
      where r.idempotency_key is null),
    job as (
      insert into mdm.aa_job (tenant_id, job_kind, priority, available_at, payload, context, max_attempts)
      select r.tenant_id, r.job_kind, coalesce(r.priority, r.kind_priority), coalesce(r.available_at, clock_timestamp()),
        coalesce(r.payload, '{}'), r.context, coalesce(r.max_attempts, r.kind_max_attempts)
      from request r
      order by r.place
      returning id),
    -- ids are drawn in the order of the insert; an array, since a join of two lists of unknown length becomes a nested loop
    drawn as (
      select array_agg(j.id order by j.id) as ids
      from job j),
    audit as (
      insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
      select clock_timestamp(), 'job_enqueued', v_actor, session_user, r.tenant_id, 'job', d.ids[r.place]::text,
        jsonb_build_object('job_kind', r.job_kind)
      from request r
      cross join drawn d
      where r.audit_level = 'full')
    select r.ord, d.ids[r.place], 'inserted'
    from request r
    cross join drawn d
    order by r.ord;

  for v_job in
    select r.*
    from unnest(v_jobs) r
    where r.idempotency_key is not null
    order by r.tenant_id, r.job_kind, r.idempotency_key, r.ord
  loop
    return query
      select v_job.ord, e.o_job_id, e.o_outcome
      from mdm._enqueue_keyed(v_job.job_kind, v_job.payload, v_job.tenant_id, v_job.idempotency_key, v_job.on_conflict = 'update',
        v_job.priority, v_job.available_at, v_job.max_attempts, v_job.context, v_actor) e;
  end loop;

  perform pg_notify('mdm_jobs', k.job_kind)
  from (select distinct r.job_kind from unnest(v_jobs) r) k
  where exists (
    select
    from mdm.aa_job_runner r
    where r.hungry
      and r.expires_at > clock_timestamp()
      and k.job_kind = any (r.kinds));
end
$$;

comment on function mdm.enqueue_jobs(jsonb, uuid) is
  'Enqueues a JSON array of jobs in the caller''s transaction; the elements are objects with the parameters of enqueue_job without p_ (job_kind, payload, tenant_id, idempotency_key, on_conflict, priority, available_at, max_attempts, context). All or nothing. Gives a row per element: ord (1, 2, ...), job_id, outcome inserted, existing or updated. Errors: MJ003 unknown or disabled kind, MJ005 bad argument, MJ007 another tenant than the login is bound to, each naming the element.';
