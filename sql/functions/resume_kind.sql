-- Ends the pause of a kind.
create or replace function mdm.resume_kind(p_job_kind text, p_actor_principal_id uuid default null)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update mdm.aa_job_kind k
  set paused_until = null,
    paused_reason = null
  where k.job_kind = p_job_kind;
  if not found then
    perform mdm._raise('MJ003', format('unknown job kind %s', coalesce(quote_literal(p_job_kind), 'NULL')), null,
      'Look for the name in mdm.aa_job_kind.');
  end if;
  perform mdm._audit('job_kind_changed', p_actor_principal_id, null, 'job_kind', p_job_kind, '{"paused_until": "resumed"}');
end
$$;

comment on function mdm.resume_kind(text, uuid) is
  'Ends the pause of a kind; its due jobs are claimed again. Audit job_kind_changed. MJ003 unknown kind.';
