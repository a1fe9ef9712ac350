-- One element of enqueue_jobs after parsing. Private.
do $$
begin
  create type mdm._job_request as (
    ord int,
    job_kind text,
    payload jsonb,
    tenant_id uuid,
    idempotency_key text,
    on_conflict text,
    priority int,
    available_at timestamptz,
    max_attempts int,
    context jsonb);
exception
  when duplicate_object then null;
end
$$;

comment on type mdm._job_request is 'One element of enqueue_jobs after parsing. Private.';
