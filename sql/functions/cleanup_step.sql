-- One batch of every part of the upkeep (S2.5, D17): recovery, retention, the outbox, what jobs that died have left behind, and a look at
-- the invariants. A part that fails is reported and does not stop the others.
create or replace function mdm.cleanup_step(p_limit int default 500)
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit int := coalesce(p_limit, 500);
  v_part text;
  v_count int;
  v_more boolean := false;
begin
  if v_limit not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;
  foreach v_part in array array['recover', 'purge', 'deliveries', 'compact', 'wake', 'indexes', 'imports', 'scans', 'emails',
    'invariants'] loop
    begin
      v_count := case v_part
        when 'recover' then (select count(*) from mdm.recover_stale_jobs(v_limit))
        when 'purge' then mdm.purge_jobs(v_limit)
        when 'deliveries' then mdm.give_up_deliveries(v_limit)
        when 'compact' then mdm.compact_outbox(v_limit)
        when 'wake' then mdm.wake_outbox()
        when 'indexes' then mdm.settle_index_status()
        when 'imports' then mdm.settle_imports()
        when 'scans' then mdm.settle_scans()
        when 'emails' then mdm.settle_emails()
        else mdm.watch_invariants()
      end;
      v_more := v_more or (v_count >= v_limit and v_part in ('recover', 'purge', 'deliveries', 'compact'));
    exception
      when others then
        raise warning 'cleanup: % failed: %', v_part, sqlerrm using errcode = sqlstate;
    end;
  end loop;
  return v_more;
end
$$;

comment on function mdm.cleanup_step(int) is
  'One batch of at most p_limit (1 .. 10,000) rows of each part of the upkeep: recovery, retention, outbox compaction, a look for overdue deliveries and for those that wait in vain, for index builds, imports, scans and mails whose job died, and for broken invariants (S2.5, D17). True when more is left. A part that fails raises a warning and does not stop the others. MJ005 bad limit.';
