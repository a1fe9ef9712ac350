-- How the service layer sends an email (S2.1): the job is enqueued in the transaction of the business action, so there is an email
-- exactly when the action was committed.
create or replace function mdm.send_email(
  p_tenant_id uuid,
  p_to text[],
  p_subject text,
  p_text text default null,
  p_html text default null,
  p_reply_to text default null,
  p_idempotency_key text default null,
  p_on_conflict text default 'ignore',
  p_available_at timestamptz default null,
  p_context jsonb default null,
  p_actor_principal_id uuid default null)
returns bigint
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform mdm._check_email(p_to, p_subject, p_text, p_html, p_reply_to);
  return mdm.enqueue_job(
    p_job_kind => 'email_send',
    p_payload => jsonb_strip_nulls(jsonb_build_object(
      'to', to_jsonb(p_to), 'subject', p_subject, 'text', p_text, 'html', p_html, 'reply_to', p_reply_to)),
    p_tenant_id => p_tenant_id,
    p_idempotency_key => p_idempotency_key,
    p_on_conflict => p_on_conflict,
    p_available_at => p_available_at,
    p_context => p_context,
    p_actor_principal_id => p_actor_principal_id);
end
$$;

comment on function mdm.send_email(uuid, text[], text, text, text, text, text, text, timestamptz, jsonb, uuid) is
  'Enqueues an email in the caller''s transaction and returns the job''s id (S2.1). p_to: 1 to 100 addresses, each gets a message of its own; p_text, p_html or both. The other parameters are those of enqueue_job. Suppressed addresses are left out when it is sent, not here. Errors: MJ005 bad address, subject or argument, MJ003 kind disabled.';
