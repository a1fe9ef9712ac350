-- Ends jobs whose key has a newer generation as done, "superseded by <id>", with an audit row that says so (D6): their work will be
-- done with the newer payload. The caller has locked the rows. Only rows with a key are looked at.
create or replace function mdm._retire_superseded(p_job_ids bigint[], p_actor_principal_id uuid)
returns setof bigint
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_job record;
  v_newest record;
begin
  for v_job in
    select j.id, j.tenant_id, j.job_kind, j.idempotency_key, j.key_no
    from mdm.aa_job j
    where j.id = any (p_job_ids)
      and j.idempotency_key is not null
    order by j.id
  loop
    v_newest := mdm._newest_of_key(v_job.tenant_id, v_job.job_kind, v_job.idempotency_key);
    if v_newest.o_key_no > v_job.key_no then
      update mdm.aa_job j
      set status = 'done',
        completed_at = clock_timestamp(),
        last_error = format('superseded by %s', v_newest.o_id)
      where j.id = v_job.id;
      perform mdm._audit('job_done', p_actor_principal_id, v_job.tenant_id, 'job', v_job.id::text,
        jsonb_build_object('job_kind', v_job.job_kind, 'superseded_by', v_newest.o_id));
      return next v_job.id;
    end if;
  end loop;
end
$$;

comment on function mdm._retire_superseded(bigint[], uuid) is
  'Ends those of the locked jobs whose key has a newer generation as done and returns their ids (D6). Private.';
