-- Stops claiming jobs of a kind; enqueue goes on (design 3).
create or replace function mdm.pause_kind(
  p_job_kind text,
  p_until timestamptz default 'infinity',
  p_reason text default null,
  p_actor_principal_id uuid default null)
returns void
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update mdm.aa_job_kind k
  set paused_until = coalesce(p_until, 'infinity'),
    paused_reason = p_reason
  where k.job_kind = p_job_kind;
  if not found then
    perform mdm._raise('MJ003', format('unknown job kind %s', coalesce(quote_literal(p_job_kind), 'NULL')), null,
      'Look for the name in mdm.aa_job_kind.');
  end if;
  perform mdm._audit('job_kind_changed', p_actor_principal_id, null, 'job_kind', p_job_kind,
    jsonb_build_object('paused_until', coalesce(p_until, 'infinity'), 'reason', p_reason));
end
$$;

comment on function mdm.pause_kind(text, timestamptz, text, uuid) is
  'Jobs of the kind are not claimed before p_until (infinity = until resume_kind); enqueue works and running jobs go on. Audit job_kind_changed. MJ003 unknown kind.';
