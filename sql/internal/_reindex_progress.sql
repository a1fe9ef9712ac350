-- Where a reindex stands: its stored position, or a fresh start when there is none or when what it rebuilds has changed.
create or replace function mdm._reindex_progress(p_job_id bigint, p_tenant_id uuid, p_entity_type_id uuid)
returns mdm.aa_reindex_progress
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_progress mdm.aa_reindex_progress;
  -- the digest first, then the writers: whoever wrote with older attributes holds its lock by now
  v_digest text := mdm._reindex_digest(p_tenant_id, p_entity_type_id);
begin
  select p.*
  into v_progress
  from mdm.aa_reindex_progress p
  where p.job_id = p_job_id;
  if found and v_progress.scope_digest = v_digest then
    return v_progress;
  end if;
  delete from mdm.aa_reindex_progress p
  where p.job_id = p_job_id;
  insert into mdm.aa_reindex_progress (job_id, scope_digest, waits_for)
  values (p_job_id, v_digest, mdm._entity_writers())
  returning * into v_progress;
  return v_progress;
end
$$;

comment on function mdm._reindex_progress(bigint, uuid, uuid) is
  'The progress row of a reindex job, made new when there is none or its scope_digest no longer holds. Private.';
