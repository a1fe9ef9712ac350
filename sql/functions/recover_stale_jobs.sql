-- Takes jobs from workers that gave no sign of life for the kind's stale_ttl (S8, D3, D5). The age is tested per kind before the limit,
-- so legal long jobs hide nothing (B08). One bad row does not stop the sweep: it falls back to row by row and passes it over.
create or replace function mdm.recover_stale_jobs(p_limit int default 500)
returns table (job_id bigint, outcome text)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_kind record;
  v_ids bigint[] := array[]::bigint[];
  v_id bigint;
begin
  if coalesce(p_limit, 500) not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;

  for v_kind in
    select k.job_kind, clock_timestamp() - k.stale_ttl as stale_before
    from mdm.aa_job_kind k
    order by k.priority, k.job_kind
  loop
    v_ids := v_ids || array(
      select j.id
      from mdm.aa_job j
      where j.status = 'running'
        and j.job_kind = v_kind.job_kind
        and j.claimed_at < v_kind.stale_before
        and coalesce(j.heartbeat_at, j.claimed_at) < v_kind.stale_before
      order by j.claimed_at
      limit coalesce(p_limit, 500) - cardinality(v_ids)
      for update skip locked);
    exit when cardinality(v_ids) >= coalesce(p_limit, 500);
  end loop;

  begin
    return query select r.o_job_id, r.o_outcome from mdm._recover_locked(v_ids) r;
  exception
    when others then
      raise warning 'recovery of % jobs at once failed: %', cardinality(v_ids), sqlerrm using errcode = sqlstate;
      foreach v_id in array v_ids loop
        begin
          return query select r.o_job_id, r.o_outcome from mdm._recover_locked(array[v_id]) r;
        exception
          when others then
            raise warning 'job % cannot be recovered: %', v_id, sqlerrm using errcode = sqlstate;
        end;
      end loop;
  end;
  perform mdm._note_upkeep('recover', cardinality(v_ids));
end
$$;

comment on function mdm.recover_stale_jobs(int) is
  'Takes up to p_limit (1 .. 10,000) running jobs whose worker gave no sign of life for the kind''s stale_ttl and says what became of each: pending, dlq (attempts used up, D3) or done (superseded, D6). attempts stay (S8.3), except that a job which went silent together with others, of its batch or of its process, gets its attempt back and runs alone from then on (D3). MJ005 bad limit.';
