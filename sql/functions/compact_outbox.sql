-- Outbox compaction (S2.5): deletes events all of whose deliveries are recorded, once they are older than the outbox kind keeps jobs;
-- negative or no retention keeps for ever (D22).
create or replace function mdm.compact_outbox(p_limit int default 1000)
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_deleted int;
begin
  if coalesce(p_limit, 1000) not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;
  delete from mdm.aa_outbox_event e
  -- an array: a plan that ran the subselect twice would lock and delete more than the limit
  where e.id = any (array(
    select o.id
    from mdm.aa_outbox_event o
    join mdm.aa_job_kind k on k.job_kind = 'outbox_dispatch'
    where k.retention_done >= '0'
      and o.dispatched_at < clock_timestamp() - k.retention_done
      -- an event with a dead delivery stays for as long as dead jobs do: it can be replayed
      and ((k.retention_dlq >= '0' and o.dispatched_at < clock_timestamp() - k.retention_dlq)
        or not exists (select from mdm.aa_webhook_delivery d where d.event_id = o.id and d.status <> 'delivered'))
    order by o.dispatched_at
    limit coalesce(p_limit, 1000)
    for update of o skip locked));
  get diagnostics v_deleted = row_count;
  perform mdm._note_upkeep('compact', v_deleted);
  return v_deleted;
end
$$;

comment on function mdm.compact_outbox(int) is
  'Deletes up to p_limit (1 .. 10,000) dispatched outbox events that are older than retention_done of outbox_dispatch (with a dead delivery: retention_dlq) and returns how many (S2.5). MJ005 bad limit.';
