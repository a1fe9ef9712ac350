-- The platform's audit actions, extended by ours (S11.1, D15). Where the platform has the type it is used as it is. A value that
-- is added here cannot be used before the transaction that adds it has committed: that is why this is a step of its own.
do $$
begin
  if to_regtype('mdm.audit_action') is null then
    create type mdm.audit_action as enum (
      'job_enqueued', 'job_done', 'job_dlq', 'job_replay', 'job_discard', 'job_stop', 'job_kind_changed', 'email_sent');
    alter type mdm.audit_action owner to mdm_platform;
  end if;
end
$$;

alter type mdm.audit_action add value if not exists 'job_enqueued';
alter type mdm.audit_action add value if not exists 'job_done';
alter type mdm.audit_action add value if not exists 'job_dlq';
alter type mdm.audit_action add value if not exists 'job_replay';
alter type mdm.audit_action add value if not exists 'job_discard';
alter type mdm.audit_action add value if not exists 'job_stop';
alter type mdm.audit_action add value if not exists 'job_kind_changed';
alter type mdm.audit_action add value if not exists 'email_sent';

comment on type mdm.audit_action is 'What an audit row reports (S11): the platform''s actions, and the job system''s job_* and email_sent.';
