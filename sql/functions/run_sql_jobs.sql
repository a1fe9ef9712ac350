-- Runs jobs whose work is SQL (cleanup_jobs, reindex) without a runner: claims one, works it off in the transactions of its kind, takes the
-- next. Driven by hand or by pg_cron. A failure goes the way of every failure (S5.2). An invoker procedure: it commits (design 3).
create or replace procedure mdm.run_sql_jobs(p_kinds text[] default array['cleanup_jobs', 'reindex'], p_limit int default 100)
language plpgsql
security invoker
as $$
declare
  v_worker pg_catalog.text := pg_catalog.format('sql/%s/%s', pg_catalog.pg_backend_pid(), pg_catalog.gen_random_uuid());
  v_kinds pg_catalog.text[] := array(
    select k.kind
    from pg_catalog.unnest(coalesce(p_kinds, array['cleanup_jobs', 'reindex'])) k (kind)
    where k.kind operator(pg_catalog.=) any (array['cleanup_jobs', 'reindex']));
  v_job mdm.aa_job;
  v_ended boolean;
  v_error pg_catalog.text;
begin
  for i in 1 .. coalesce(p_limit, 100) loop
    select c.* into v_job from mdm.claim_job(v_worker, v_kinds) c;
    exit when not found;
    commit;
    loop
      v_error := null;
      begin
        v_ended := mdm.run_sql_job_step(v_job.id, v_job.lease_no);
      exception
        when others then
          v_error := pg_catalog.format('%s: %s', sqlstate, sqlerrm);
      end;
      if v_error is not null then
        -- MJ001 means that somebody else has it now; MJ005 that it can never work
        if v_error operator(pg_catalog.!~~) 'MJ001%' then
          perform mdm.fail_job(v_job.id, v_job.lease_no, v_error, v_error operator(pg_catalog.!~~) 'MJ005%');
        end if;
        commit;
        exit;
      end if;
      commit;
      exit when v_ended;
    end loop;
  end loop;
end
$$;

comment on procedure mdm.run_sql_jobs(text[], int) is
  'Claims and works off up to p_limit due jobs of the kinds whose work is SQL: cleanup_jobs, reindex (NULL = both); other kinds in p_kinds are left alone. Call it alone, in autocommit. A chunk that others block is given back for 15 s.';
