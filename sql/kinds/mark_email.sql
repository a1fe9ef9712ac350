-- The mark before an email is handed to the provider (S2.1, S10.2): committed first, so that the next run knows that this one may
-- have sent it. The policy for what a crash left open: once more with the same Message-ID, then never again.
create or replace function mdm.mark_email(
  p_job_id bigint,
  p_lease_no bigint,
  p_recipient text,
  p_subject text,
  p_provider text,
  p_domain text)
returns table (decision text, message_id text)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_job record;
  v_log mdm.aa_email_log;
begin
  perform mdm.check_lease(p_job_id, p_lease_no);
  select j.tenant_id, j.attempts, j.created_at
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id;
  select l.*
  into v_log
  from mdm.aa_email_log l
  where l.job_id = p_job_id
    and l.recipient = p_recipient
  for update;

  v_log.unknown_sends := coalesce(v_log.unknown_sends, 0) + (v_log.status is not distinct from 'sending')::int;
  decision := case
    when v_log.status = 'sent' then 'sent'
    when v_log.unknown_sends >= 2 then 'unknown'
    when mdm._email_suppressed(v_job.tenant_id, p_recipient) then 'suppressed'
    -- a replay begins at the first attempt again and asks the provider once more
    when v_log.refused and v_job.attempts > 1 then 'refused'
    else 'send'
  end;
  -- the same for every run of the job, and no other's even where an id comes back after a point-in-time restore
  message_id := coalesce(v_log.provider_message_id, format('<%s.%s@%s>', p_job_id,
    md5(concat_ws('|', p_job_id, extract(epoch from v_job.created_at), p_recipient)), p_domain));
  if decision in ('sent', 'refused') then
    return next;
    return;
  end if;

  insert into mdm.aa_email_log as l (tenant_id, job_id, recipient, subject, status, provider, provider_message_id, error, refused,
    unknown_sends)
  values (v_job.tenant_id, p_job_id, p_recipient, p_subject,
    case decision when 'send' then 'sending' when 'suppressed' then 'suppressed' else 'failed' end::mdm.email_status,
    p_provider, message_id,
    case decision when 'unknown' then 'twice the provider''s answer was lost: it may have been sent, and is not sent again' end,
    decision = 'unknown', v_log.unknown_sends)
  on conflict (job_id, recipient) where job_id is not null do update
  set status = excluded.status,
    error = excluded.error,
    refused = excluded.refused,
    unknown_sends = excluded.unknown_sends;
  return next;
end
$$;

comment on function mdm.mark_email(bigint, bigint, text, text, text, text) is
  'Marks one recipient of a claimed email_send as sending and says what to do (S2.1, S10.2): send (with this Message-ID), sent, suppressed, refused (by the provider, in this life of the job) or unknown (two runs lost the answer; not sent again). Commit before the provider is called. MJ001 lease lost.';
