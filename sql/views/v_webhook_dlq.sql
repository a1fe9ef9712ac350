-- Deliveries that were given up (S2.4), newest first. The secret is not shown. A login that is bound to tenants sees theirs only, as the
-- policy of aa_job has it.
create or replace view mdm.v_webhook_dlq as
select d.event_id, d.endpoint_id, o.tenant_id, o.event_type, w.url, w.enabled, d.attempts, d.response_status, d.last_error, d.completed_at,
  o.created_at
from mdm.aa_webhook_delivery d
join mdm.aa_outbox_event o on o.id = d.event_id
join mdm.aa_webhook_endpoint w on w.id = d.endpoint_id
where d.status = 'dlq'
  and coalesce(
    w.tenant_id = any ((
      select array_agg(pt.tenant_id)
      from mdm.aa_principal p
      join mdm.aa_principal_tenant pt on pt.principal_id = p.id
      where p.role_name = session_user)::uuid[]),
    true)
order by d.completed_at desc, d.event_id desc;

comment on view mdm.v_webhook_dlq is
  'Dead deliveries (S2.4), newest first. Bring those of an endpoint back with mdm.replay_deliveries(endpoint_id).';
comment on column mdm.v_webhook_dlq.event_id is 'The event.';
comment on column mdm.v_webhook_dlq.endpoint_id is 'Where it could not be delivered.';
comment on column mdm.v_webhook_dlq.tenant_id is 'Tenant of the event.';
comment on column mdm.v_webhook_dlq.event_type is 'What happened.';
comment on column mdm.v_webhook_dlq.url is 'Address of the endpoint.';
comment on column mdm.v_webhook_dlq.enabled is 'false: the endpoint gets nothing at present.';
comment on column mdm.v_webhook_dlq.attempts is 'Posts it had.';
comment on column mdm.v_webhook_dlq.response_status is 'HTTP status of the last answer, NULL = there was none.';
comment on column mdm.v_webhook_dlq.last_error is 'Why the last post failed.';
comment on column mdm.v_webhook_dlq.completed_at is 'When it was given up.';
comment on column mdm.v_webhook_dlq.created_at is 'When the event happened.';
