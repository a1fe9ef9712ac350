-- Who holds a row, by its xmax: one transaction, or the members of a multixact, as when a chunk has checked its lease and heartbeats have
-- written since. Nothing says which of the two a number is, so both are looked up; of either only what still runs has a lock.
create or replace function mdm.find_holders(p_xmax xid)
returns setof int
language plpgsql
stable
parallel unsafe
security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  v_xids xid[] := array[p_xmax];
begin
  begin
    v_xids := v_xids || array(select m.xid from pg_get_multixact_members(p_xmax) m);
  exception
    when internal_error or invalid_parameter_value then
      null;  -- there is no multixact of this number
  end;
  return query
    select distinct l.pid
    from pg_locks l
    where l.locktype = 'transactionid'
      and l.mode = 'ExclusiveLock'
      and l.granted
      and l.transactionid = any (v_xids);
end
$$;

comment on function mdm.find_holders(xid) is 'Backends whose transactions hold the row with this xmax; the view v_job_stale calls it.';
