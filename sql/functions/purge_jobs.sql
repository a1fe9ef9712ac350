-- Retention (D22): deletes ended jobs that are older than their kind keeps them, at most p_limit, oldest first per kind. Negative or no
-- retention keeps for ever. A dead or stopped job that goes this way leaves its snapshot in the audit, as a discard does.
create or replace function mdm.purge_jobs(p_limit int default 1000)
returns int
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_kind record;
  v_ids bigint[] := array[]::bigint[];
begin
  if coalesce(p_limit, 1000) not between 1 and 10000 then
    perform mdm._raise('MJ005', format('p_limit is %s', p_limit), null, 'Use 1 .. 10000 (D13).');
  end if;

  for v_kind in
    select k.job_kind, s.status, clock_timestamp() - s.retention as completed_before
    from mdm.aa_job_kind k
    cross join lateral (values
      ('done'::mdm.job_status, k.retention_done),
      ('dlq', k.retention_dlq),
      ('failed', k.retention_failed)) s (status, retention)
    where s.retention >= '0'
    -- done before dead: these may have to wait, see below
    order by s.status
  loop
    v_ids := v_ids || case v_kind.status
      when 'done' then array(
        select j.id
        from mdm.aa_job j
        where j.status = 'done'
          and j.job_kind = v_kind.job_kind
          and j.completed_at < v_kind.completed_before
        order by j.completed_at
        limit coalesce(p_limit, 1000) - cardinality(v_ids)
        for update skip locked)
      else array(
        select j.id
        from mdm.aa_job j
        where j.status in ('dlq', 'failed')
          and j.status = v_kind.status
          and j.job_kind = v_kind.job_kind
          and j.completed_at < v_kind.completed_before
        order by j.completed_at
        limit coalesce(p_limit, 1000) - cardinality(v_ids)
        for update skip locked)
      end;
    exit when cardinality(v_ids) >= coalesce(p_limit, 1000);
  end loop;

  begin
    perform mdm._delete_jobs(v_ids, 'retention', null);
  exception
    when lock_not_available then
      -- somebody holds what a dead job has left under way: the dead ones wait for the next tick, the others for nobody
      v_ids := array(select j.id from mdm.aa_job j where j.id = any (v_ids) and j.status = 'done');
      perform mdm._delete_jobs(v_ids, 'retention', null);
  end;
  perform mdm._note_upkeep('purge', cardinality(v_ids));
  return cardinality(v_ids);
end
$$;

comment on function mdm.purge_jobs(int) is
  'Deletes up to p_limit (1 .. 10,000) ended jobs that are older than the retention of their kind and returns how many (D22). The audit stays; dlq and failed rows write job_discard, and wait for the next call while somebody holds what they left under way. MJ005 bad limit.';
