-- Writes one audit row about a job or a kind, in the transaction of the act (S11).
create or replace function mdm._audit(
  p_action mdm.audit_action,
  p_actor_principal_id uuid,
  p_tenant_id uuid,
  p_object_type text,
  p_object_id text,
  p_payload jsonb)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
begin
  insert into mdm.aa_audit_log (occurred_at, action, actor_principal_id, session_role, tenant_id, object_type, object_id, payload)
  values (clock_timestamp(), p_action, mdm._actor(p_actor_principal_id), session_user, p_tenant_id, p_object_type, p_object_id,
    jsonb_strip_nulls(p_payload));
end
$$;

comment on function mdm._audit(mdm.audit_action, uuid, uuid, text, text, jsonb) is
  'Writes one audit row in the current transaction (S11). Private.';
