-- The newest generation of an idempotency key (D6). Two statements, since "is not distinct from" is no index condition.
-- Pinned here, since some callers are not: a plan that one of them cached while the table was empty would serve the claim as well.
-- jit off wherever a path is disabled: its price tag would switch it on, at half a second a statement.
create or replace function mdm._newest_of_key(
  p_tenant_id uuid,
  p_job_kind text,
  p_idempotency_key text,
  out o_id bigint,
  out o_key_no int,
  out o_status mdm.job_status)
returns record
language plpgsql
stable
parallel safe
security invoker
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
  if p_tenant_id is null then
    select j.id, j.key_no, j.status
    into o_id, o_key_no, o_status
    from mdm.aa_job j
    where j.tenant_id is null
      and j.job_kind = p_job_kind
      and j.idempotency_key = p_idempotency_key
    order by j.key_no desc
    limit 1;
  else
    select j.id, j.key_no, j.status
    into o_id, o_key_no, o_status
    from mdm.aa_job j
    where j.tenant_id = p_tenant_id
      and j.job_kind = p_job_kind
      and j.idempotency_key = p_idempotency_key
    order by j.key_no desc
    limit 1;
  end if;
end
$$;

comment on function mdm._newest_of_key(uuid, text, text) is 'The newest generation of a key, NULLs when there is none (D6). Private.';
