-- Parses and checks the array of enqueue_jobs; raises at the first element that is wrong, naming its place.
create or replace function mdm._parse_jobs(p_jobs jsonb)
returns mdm._job_request[]
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_jobs mdm._job_request[];
  v_bad record;
  v_bound_tenants uuid[] := mdm._bound_tenants();
begin
  if jsonb_typeof(p_jobs) is distinct from 'array' then
    perform mdm._raise('MJ005', 'p_jobs is not a JSON array', format('It is %s.', coalesce('a JSON ' || jsonb_typeof(p_jobs), 'NULL')),
      'Pass [{"job_kind": "...", "payload": {...}}, ...].');
  end if;
  select e.ord, e.value, k.key
  into v_bad
  from jsonb_array_elements(p_jobs) with ordinality e (value, ord)
  left join lateral jsonb_object_keys(case when jsonb_typeof(e.value) = 'object' then e.value else '{}' end) k (key)
    on k.key not in ('job_kind', 'payload', 'tenant_id', 'idempotency_key', 'on_conflict', 'priority', 'available_at',
      'max_attempts', 'context')
  where jsonb_typeof(e.value) <> 'object'
    or k.key is not null
  order by e.ord
  limit 1;
  if found then
    perform mdm._raise('MJ005',
      case when v_bad.key is null then 'a job is not an object' else format('unknown key %L', v_bad.key) end
        || format(' (element %s of p_jobs)', v_bad.ord),
      null, 'The keys are the parameters of mdm.enqueue_job without p_.');
  end if;

  begin
    select coalesce(array_agg(
      -- as with the parameters: left out is the default, null in an update keeps what the row has (D6)
      (e.ord, r.job_kind, case when e.value ? 'payload' then r.payload else '{}' end, r.tenant_id, r.idempotency_key, coalesce(r.on_conflict, 'ignore'), r.priority,
        r.available_at, r.max_attempts, r.context)::mdm._job_request
      order by e.ord), '{}')
    into v_jobs
    from jsonb_array_elements(p_jobs) with ordinality e (value, ord)
    cross join lateral jsonb_to_record(e.value) as r (
      job_kind text, payload jsonb, tenant_id uuid, idempotency_key text, on_conflict text, priority int, available_at timestamptz,
      max_attempts int, context jsonb);
  exception
    when data_exception then
      perform mdm._raise('MJ005', format('a value in p_jobs has the wrong type: %s', sqlerrm), null,
        'priority and max_attempts are int, tenant_id is a uuid, available_at a timestamp with time zone.');
  end;

  select r.*
  into v_bad
  from unnest(v_jobs) r
  left join mdm.aa_job_kind k on k.job_kind = r.job_kind
  where k.job_kind is null
    or not k.enabled
    or (k.tenant_required and r.tenant_id is null)
    or coalesce(r.tenant_id, '00000000-0000-0000-0000-000000000000'::uuid) <> all (v_bound_tenants)
    or (r.tenant_id is not null and not exists (select from mdm.aa_tenant t where t.id = r.tenant_id))
    or jsonb_typeof(r.payload) <> 'object'
    or pg_column_size(r.payload) > 16777216
    or pg_column_size(r.context) > 65536
    or octet_length(r.idempotency_key) not between 1 and 255
    or r.on_conflict not in ('ignore', 'update')
    or r.max_attempts < 1
    or r.available_at < '1970-01-01 00:00:00+00'
    or r.available_at >= '9999-12-31 00:00:00+00'
  order by r.ord
  limit 1;
  if found then
    perform mdm._refuse_enqueue(format(' (element %s of p_jobs)', v_bad.ord), v_bad.job_kind, v_bad.payload, v_bad.tenant_id,
      v_bad.idempotency_key, v_bad.on_conflict, v_bad.max_attempts, v_bad.available_at, v_bad.context);
  end if;
  return v_jobs;
end
$$;

comment on function mdm._parse_jobs(jsonb) is 'The elements of enqueue_jobs, checked; MJ003, MJ005 or MJ007 names the first bad one. Private.';
