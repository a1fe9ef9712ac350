-- Stand-in for the platform's email log (D20): one row an email that a job sends; the mark "sending" is committed before the
-- provider is called, so that a second run knows that the first may have sent it (S10.2).
do $$
begin
  if to_regclass('mdm.aa_email_log') is not null then
    return;
  end if;

  create table mdm.aa_email_log (
    id bigint generated always as identity primary key,
    tenant_id uuid references mdm.aa_tenant (id),
    job_id bigint,
    recipient text not null,
    subject text not null default '',
    status mdm.email_status not null,
    provider text,
    provider_message_id text,
    error text,
    refused boolean not null default false,
    unknown_sends int not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    sent_at timestamptz,
    constraint aa_email_log_sent_check check ((status = 'sent') = (sent_at is not null))
  );

  -- deduplication (S10.2)
  create unique index uq_aa_email_log_provider_message_id on mdm.aa_email_log (provider, provider_message_id)
    nulls not distinct where provider_message_id is not null;
  -- what a job has sent to whom already
  create unique index uq_aa_email_log_job_recipient on mdm.aa_email_log (job_id, recipient) where job_id is not null;
  -- the foreign key
  create index ix_aa_email_log_tenant on mdm.aa_email_log (tenant_id);

  comment on table mdm.aa_email_log is 'Emails sent or tried (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_email_log.id is 'Row number.';
  comment on column mdm.aa_email_log.tenant_id is 'The tenant in whose name it was sent, NULL = the platform.';
  comment on column mdm.aa_email_log.job_id is 'The job that sends it; no foreign key, jobs are deleted before their log.';
  comment on column mdm.aa_email_log.recipient is 'Address of one recipient.';
  comment on column mdm.aa_email_log.subject is 'Subject line.';
  comment on column mdm.aa_email_log.status is 'How far it came.';
  comment on column mdm.aa_email_log.provider is 'Who carried it.';
  comment on column mdm.aa_email_log.provider_message_id is 'The provider''s id, unique for a provider: the key of deduplication (S10.2).';
  comment on column mdm.aa_email_log.error is 'What the provider said when it refused.';
  comment on column mdm.aa_email_log.refused is 'true: the provider refused it for good; a retry leaves it alone, a replay tries again.';
  comment on column mdm.aa_email_log.unknown_sends is
    'Runs that ended between the mark and the provider''s answer: each may have sent it. After the second it is not sent again.';
  comment on column mdm.aa_email_log.created_at is 'When the first try began.';
  comment on column mdm.aa_email_log.sent_at is 'When the provider took it; set exactly in status sent.';
end
$$;
