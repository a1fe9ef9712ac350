-- What the provider said about one email (S2.1); an email that was sent is audited in the same transaction (S11.2).
create or replace function mdm.record_email(p_job_id bigint, p_lease_no bigint, p_recipient text, p_outcome text, p_error text default null)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_log mdm.aa_email_log;
begin
  if p_outcome is null or p_outcome not in ('sent', 'failed', 'refused') then
    perform mdm._raise('MJ005', format('outcome of an email is %s', coalesce(quote_literal(p_outcome), 'NULL')), null,
      'Use sent, failed (it was certainly not sent, try again) or refused (for good).');
  end if;
  perform mdm.check_lease(p_job_id, p_lease_no);
  update mdm.aa_email_log l
  set status = case p_outcome when 'sent' then 'sent' else 'failed' end::mdm.email_status,
    sent_at = case p_outcome when 'sent' then clock_timestamp() end,
    refused = p_outcome = 'refused',
    error = mdm._cut_bytes(p_error, 8192)
  where l.job_id = p_job_id
    and l.recipient = p_recipient
    and l.status = 'sending'
  returning l.* into v_log;
  if not found then
    perform mdm._raise('MJ004', 'this recipient is not being sent to', format('job %s, recipient %s', p_job_id, p_recipient),
      'Call mdm.mark_email first, and record once.');
  end if;
  if p_outcome = 'sent' then
    perform mdm._audit('email_sent', null, v_log.tenant_id, 'job', p_job_id::text,
      jsonb_build_object('email_log_id', v_log.id, 'provider', v_log.provider, 'provider_message_id', v_log.provider_message_id));
  end if;
end
$$;

comment on function mdm.record_email(bigint, bigint, text, text, text) is
  'Records what became of a marked recipient of a claimed email_send: sent (audit email_sent), failed (certainly not sent; a retry sends it) or refused (for good). MJ001 lease lost, MJ004 not marked, MJ005 bad outcome.';
