-- The upkeep (S2.5, D17): recovery, retention, outbox, in committed batches within a time budget. Called by every runner, by
-- pg_cron, by a cleanup_jobs job and by hand: under the lock one of them does a batch and the others have nothing to do. A part
-- that fails is reported and does not stop the others. An invoker with every name and operator qualified, since a procedure that commits may
-- have no SET clause (design 3).
create or replace procedure mdm.cleanup_jobs(p_budget interval default '30 seconds')
language plpgsql
security invoker
as $$
declare
  v_until pg_catalog.timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) coalesce(p_budget, '30 seconds'::pg_catalog.interval);
  v_part pg_catalog.text;
  v_count int;
begin
  foreach v_part in array array['recover', 'purge', 'compact', 'wake', 'settle'] loop
    loop
      if not pg_catalog.pg_try_advisory_xact_lock(6579046001) then
        return;
      end if;
      begin
        v_count := case
          when v_part operator(pg_catalog.=) 'recover' then (select pg_catalog.count(*) from mdm.recover_stale_jobs(500))
          when v_part operator(pg_catalog.=) 'purge' then mdm.purge_jobs(1000)
          when v_part operator(pg_catalog.=) 'compact' then mdm.compact_outbox(1000)
          when v_part operator(pg_catalog.=) 'wake' then mdm.wake_outbox()
          else mdm.settle_index_status()
        end;
      exception
        when others then
          raise warning 'cleanup: % failed: %', v_part, sqlerrm using errcode = sqlstate;
          v_count := 0;
      end;
      commit;
      if pg_catalog.clock_timestamp() operator(pg_catalog.>=) v_until then
        return;
      end if;
      exit when v_count operator(pg_catalog.<) case when v_part operator(pg_catalog.=) 'recover' then 500 else 1000 end;
    end loop;
  end loop;
end
$$;

comment on procedure mdm.cleanup_jobs(interval) is
  'Recovery, retention, outbox compaction, a look for overdue deliveries and for index builds that died, in committed batches within p_budget (default 30 s) (S2.5, D17, D22). Call it alone, in autocommit. Safe to call twice at the same moment: one call works, the other returns.';
