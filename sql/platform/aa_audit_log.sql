-- Stand-in for the platform's audit log (D20). Append-only; no foreign key, so that nothing the audit speaks of is held by it.
do $$
begin
  if to_regclass('mdm.aa_audit_log') is not null then
    return;
  end if;

  create table mdm.aa_audit_log (
    id bigint generated always as identity primary key,
    occurred_at timestamptz not null default clock_timestamp(),
    action mdm.audit_action not null,
    actor_principal_id uuid,
    session_role name not null default session_user,
    tenant_id uuid,
    object_type text not null,
    object_id text,
    payload jsonb not null default '{}'
  ) with (
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000
  );

  -- Finds the rows of a job between its birth and its end without a b-tree entry for each audit row. A search reads what is not
  -- summarized, too. autosummarize forgets ranges while much is written, so that vacuum has to come soon, however large the table is.
  create index ix_aa_audit_log_occurred_at on mdm.aa_audit_log using brin (occurred_at) with (autosummarize = on);

  comment on table mdm.aa_audit_log is 'Append-only audit (a stand-in where the platform brings none, D20); written in the transaction of the act (S11).';
  comment on column mdm.aa_audit_log.id is 'Row number, in the order of writing.';
  comment on column mdm.aa_audit_log.occurred_at is 'When it happened (clock, not transaction start, D7).';
  comment on column mdm.aa_audit_log.action is 'What happened (S11.1).';
  comment on column mdm.aa_audit_log.actor_principal_id is 'Who is said to have done it (D11).';
  comment on column mdm.aa_audit_log.session_role is 'The database login that did it (session_user): the fact beside the claim (D11).';
  comment on column mdm.aa_audit_log.tenant_id is 'Tenant of the object, NULL = the platform.';
  comment on column mdm.aa_audit_log.object_type is 'job for the life cycle of jobs, job_kind for settings.';
  comment on column mdm.aa_audit_log.object_id is 'The job''s id, or the kind.';
  comment on column mdm.aa_audit_log.payload is 'Details of the act: job_kind, last_error, reason, a snapshot of what is deleted.';
end
$$;
