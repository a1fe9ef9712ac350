-- Stores the outcome of posts (S2.4). Only what was taken under this lease: whatever was freed meanwhile is somebody else's.
create or replace function mdm._store_deliveries(p_job_id bigint, p_lease_no bigint, p_results jsonb)
returns table (event_id bigint, endpoint_id uuid, answered boolean)
language plpgsql
volatile
parallel unsafe
security invoker
as $$
#variable_conflict use_column
begin
  return query
  with results as materialized (
    select r.event_id, r.endpoint_id, r.status, mdm._cut_bytes(r.error, 2000) as error
    from jsonb_to_recordset(p_results) as r (event_id bigint, endpoint_id uuid, status int, error text)
  )
  update mdm.aa_webhook_delivery d
  set status = case
      when r.error is null then 'delivered'
      when d.attempts >= k.max_attempts then 'dlq'
      else 'failed'
    end::mdm.webhook_delivery_status,
    response_status = r.status,
    last_error = r.error,
    job_id = null,
    lease_no = null,
    available_at = clock_timestamp() + mdm._backoff(d.attempts, k.base_delay, k.max_delay, k.jitter, random()),
    completed_at = case when r.error is null or d.attempts >= k.max_attempts then clock_timestamp() end
  from results r
  join mdm.aa_job_kind k on k.job_kind = 'outbox_dispatch'
  where d.event_id = r.event_id
    and d.endpoint_id = r.endpoint_id
    and d.job_id = p_job_id
    and d.lease_no = p_lease_no
  returning d.event_id, d.endpoint_id, r.status is not null;
end
$$;

comment on function mdm._store_deliveries(bigint, bigint, jsonb) is
  'Stores posts taken under a lease: delivered, failed (available_at = backoff of the kind) or dlq; returns them. Private.';
