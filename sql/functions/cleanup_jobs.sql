-- The upkeep (S2.5, D17) in committed batches within a time budget. Called by every runner, by pg_cron and by hand: under the lock one of
-- them does a batch and the others have nothing to do. An invoker with every name and operator qualified, since a procedure that commits
-- may have no SET clause (design 3).
create or replace procedure mdm.cleanup_jobs(p_budget interval default '60 seconds')
language plpgsql
security invoker
as $$
declare
  v_until pg_catalog.timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) coalesce(p_budget, '60 seconds'::pg_catalog.interval);
  v_began pg_catalog.timestamptz;
  v_more boolean;
begin
  loop
    if not pg_catalog.pg_try_advisory_xact_lock(6579046001) then
      return;
    end if;
    v_began := pg_catalog.clock_timestamp();
    -- claims and finishes wait for the disk, the upkeep need not: what a crash takes back is done again
    set local synchronous_commit = off;
    v_more := mdm.cleanup_step();
    commit;
    exit when not v_more or pg_catalog.clock_timestamp() operator(pg_catalog.>=) v_until;
    -- the queue goes first: a long purge works half of the time
    perform pg_catalog.pg_sleep_for(least(
      pg_catalog.clock_timestamp() operator(pg_catalog.-) v_began, '1 second'::pg_catalog.interval));
  end loop;
end
$$;

comment on procedure mdm.cleanup_jobs(interval) is
  'Repeats mdm.cleanup_step in transactions of its own, with a pause as long as each took, until nothing is left or p_budget (default 60 s) is over (S2.5, D17, D22). Call it alone, in autocommit. Safe to call twice at the same moment: one call works, the other returns.';
