-- One transaction's worth of a job whose work is SQL; the last one carries finish_job (D24).
create or replace function mdm.run_sql_job_step(p_job_id bigint, p_lease_no bigint)
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_kind text;
  v_chunk record;
  v_left boolean;
begin
  perform mdm.check_lease(p_job_id, p_lease_no);
  -- a step is short: its beginning is the heartbeat (D5)
  perform mdm.extend_jobs(array[p_job_id], array[p_lease_no]);
  select j.job_kind into v_kind from mdm.aa_job j where j.id = p_job_id;

  if v_kind = 'reindex' then
    select c.* into v_chunk from mdm.reindex_chunk(p_job_id, p_lease_no) c;
    if v_chunk.blocked_by is not null then
      perform mdm.release_job(p_job_id, p_lease_no, interval '15 seconds', 'reindex waits for ' || v_chunk.blocked_by);
      return true;
    end if;
    v_left := not v_chunk.is_last;
  elsif v_kind = 'cleanup_jobs' then
    v_left := mdm.cleanup_step();
  else
    perform mdm._raise('MJ005', format('jobs of kind %s are not run by SQL alone', v_kind), null, 'Start a runner: jobrunner --kinds ' || v_kind);
  end if;

  if not v_left then
    perform mdm.finish_job(p_job_id, p_lease_no);
  end if;
  return not v_left;
end
$$;

comment on function mdm.run_sql_job_step(bigint, bigint) is
  'Does the next chunk of a claimed cleanup_jobs or reindex job in the caller''s transaction; true when the claim has ended with it (finished or given back). Called by mdm.run_sql_jobs. MJ001 lease lost, MJ005 another kind.';
