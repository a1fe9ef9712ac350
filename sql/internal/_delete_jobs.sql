-- Deletes locked jobs (S9.3, D22): what was not done leaves a snapshot in the audit, redacted as the kind says.
create or replace function mdm._delete_jobs(p_job_ids bigint[], p_reason text, p_actor_principal_id uuid)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
set enable_seqscan = off
set jit = off
as $$
declare
  v_undone bigint[] := array(select j.id from mdm.aa_job j where j.id = any (p_job_ids) and j.status <> 'done');
begin
  perform mdm._forget_progress(p_job_ids);
  if v_undone <> '{}' then
    perform mdm._abandon_work(v_undone);
  end if;

  with gone as (
    delete from mdm.aa_job j
    where j.id = any (p_job_ids)
    returning j.*)
  insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
  select clock_timestamp(), 'job_discard', mdm._actor(p_actor_principal_id), session_user, g.tenant_id, 'job', g.id::text,
    jsonb_strip_nulls(jsonb_build_object(
      'job_kind', g.job_kind,
      'status', g.status,
      'attempts', g.attempts,
      'last_error', g.last_error,
      'idempotency_key', g.idempotency_key,
      'created_at', g.created_at,
      'reason', p_reason))
      || jsonb_build_object('payload', mdm._redact(g.payload, coalesce(k.redact, '{}')))
  from gone g
  left join mdm.aa_job_kind k on k.job_kind = g.job_kind
  where g.status <> 'done';
end
$$;

comment on function mdm._delete_jobs(bigint[], text, uuid) is 'Deletes jobs; job_discard with a snapshot for each that was not done (S9.3, D22). Private.';
