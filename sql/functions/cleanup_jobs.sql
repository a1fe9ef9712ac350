-- The upkeep (S2.5, D17) in committed batches within a time budget. Called by every runner, by pg_cron and by hand: under the lock one of
-- them does a batch and the others have nothing to do. An invoker with every name and operator qualified, since a procedure that commits
-- may have no SET clause (design 3).
create or replace procedure mdm.cleanup_jobs(p_budget interval default '30 seconds')
language plpgsql
security invoker
as $$
declare
  v_until pg_catalog.timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) coalesce(p_budget, '30 seconds'::pg_catalog.interval);
  v_more boolean;
begin
  loop
    if not pg_catalog.pg_try_advisory_xact_lock(6579046001) then
      return;
    end if;
    v_more := mdm.cleanup_step();
    commit;
    exit when not v_more or pg_catalog.clock_timestamp() operator(pg_catalog.>=) v_until;
  end loop;
end
$$;

comment on procedure mdm.cleanup_jobs(interval) is
  'Repeats mdm.cleanup_step in transactions of its own until nothing is left or p_budget (default 30 s) is over (S2.5, D17, D22). Call it alone, in autocommit. Safe to call twice at the same moment: one call works, the other returns.';
