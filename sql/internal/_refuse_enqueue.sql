-- Says why a job cannot be enqueued. Called only when it cannot: the hot path tests, this explains.
create or replace function mdm._refuse_enqueue(
  p_where text,
  p_job_kind text,
  p_payload jsonb,
  p_tenant_id uuid,
  p_idempotency_key text,
  p_on_conflict text,
  p_max_attempts int,
  p_available_at timestamptz,
  p_context jsonb)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_kind mdm.aa_job_kind;
begin
  select k.* into v_kind from mdm.aa_job_kind k where k.job_kind = p_job_kind;
  if v_kind.job_kind is null then
    perform mdm._raise('MJ003', format('unknown job kind %s%s', coalesce(quote_literal(p_job_kind), 'NULL'), p_where),
      'No row of mdm.aa_job_kind has this name.',
      'Check the spelling, or register the kind: select mdm.set_job_kind(''name'', ''{}'');');
  elsif not v_kind.enabled then
    perform mdm._raise('MJ003', format('job kind %s is disabled%s', p_job_kind, p_where),
      'Jobs that are queued are still worked off; new ones are refused.',
      format('Enable it: select mdm.set_job_kind(%L, ''{"enabled": true}'');', p_job_kind));
  elsif jsonb_typeof(p_payload) <> 'object' then
    perform mdm._raise('MJ005', format('payload is a JSON %s, not an object%s', jsonb_typeof(p_payload), p_where),
      null, 'Wrap it: {"items": [...]}.');
  elsif pg_column_size(p_payload) > 16777216 then
    perform mdm._raise('MJ005', format('payload of %s bytes is too large%s', pg_column_size(p_payload), p_where),
      'A payload may have 16 MiB.', 'Store the data elsewhere and pass a reference to it.');
  elsif pg_column_size(p_context) > 65536 then
    perform mdm._raise('MJ005', format('context of %s bytes is too large%s', pg_column_size(p_context), p_where),
      'A context may have 64 KiB.', 'Put data into the payload; the context is for traceparent and the like.');
  elsif p_tenant_id is null and v_kind.tenant_required then
    perform mdm._raise('MJ005', format('job kind %s needs a tenant%s', p_job_kind, p_where),
      null, 'Pass p_tenant_id.');
  -- before the next: whether other tenants exist is none of a bound login's business
  elsif coalesce(p_tenant_id, '00000000-0000-0000-0000-000000000000'::uuid) <> all (mdm._bound_tenants()) then
    perform mdm._raise('MJ007', format('%s may not enqueue for %s%s', session_user, coalesce('tenant ' || p_tenant_id, 'the platform'), p_where),
      'The login is bound to tenants by mdm.aa_principal_tenant.', 'Pass one of its tenants as p_tenant_id, or use another login.');
  elsif p_tenant_id is not null and not exists (select from mdm.aa_tenant t where t.id = p_tenant_id) then
    perform mdm._raise('MJ005', format('unknown tenant %s%s', p_tenant_id, p_where),
      'No row of mdm.aa_tenant has this id.', 'Check the id; a tenant is created before its jobs.');
  elsif octet_length(p_idempotency_key) not between 1 and 255 then
    perform mdm._raise('MJ005', format('idempotency key of %s bytes%s', octet_length(p_idempotency_key), p_where),
      'A key has 1 to 255 bytes.', 'Instead of a long key use its hash; for no key pass NULL.');
  elsif p_on_conflict not in ('ignore', 'update') then
    perform mdm._raise('MJ005', format('on_conflict is %L%s', p_on_conflict, p_where),
      null, 'Use ignore or update (S10.1).');
  elsif p_max_attempts < 1 then
    perform mdm._raise('MJ005', format('max_attempts is %s%s', p_max_attempts, p_where),
      null, 'Use 1 or more, or NULL for the default of the kind.');
  else
    perform mdm._raise('MJ005', format('available_at %s is out of range%s', p_available_at, p_where),
      'It must lie between the years 1970 and 9999.', 'Pass NULL for "now".');
  end if;
end
$$;

comment on function mdm._refuse_enqueue(text, text, jsonb, uuid, text, text, int, timestamptz, jsonb) is
  'Raises MJ003, MJ005 or MJ007 that says why a job cannot be enqueued. Private.';
