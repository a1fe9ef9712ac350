-- What of the audit can be checked without reading much: its newest p_entries ids, and the jobs that ended after p_since or later, so that
-- the audit rows of all of them are among these, and each kind has at most its share of p_jobs done ones and dead ones. o_since is infinity
-- where there is nothing that can be checked: the platform's audit has no such ids, or is written to faster than that.
create or replace function mdm._audit_slice(p_since timestamptz, p_jobs int, p_entries int, out o_since timestamptz, out o_entry bigint)
returns record
language plpgsql
stable
parallel safe
security invoker
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  -- the clock is read before the id is drawn, a batch may have waited for a lock in between
  c_statement constant interval := interval '5 seconds';
  c_batches constant int := 1000;
  v_share int := p_jobs / (select greatest(count(*), 1) from mdm.aa_job_kind k);
begin
  o_since := 'infinity';
  if not exists (
    select
    from pg_catalog.pg_index i
    join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
    where i.indrelid = 'mdm.aa_audit_log'::regclass
      and i.indisvalid
      and i.indpred is null
      and a.attname = 'id'
      and a.atttypid = 'bigint'::regtype)
  then
    return;
  end if;

  o_entry := coalesce((select max(a.id) from mdm.aa_audit_log a), 0) - p_entries + 1;
  o_since := greatest(
    p_since,
    (
      select max(e.completed_at)
      from mdm.aa_job_kind k
      cross join lateral (
        (select j.completed_at
        from mdm.aa_job j
        where j.status = 'done' and j.job_kind = k.job_kind and k.audit_level = 'full' and j.completed_at > p_since
        order by j.completed_at desc
        limit 1 offset v_share)
        union all
        (select j.completed_at
        from mdm.aa_job j
        where j.status in ('dlq', 'failed') and j.job_kind = k.job_kind and j.completed_at > p_since
        order by j.completed_at desc
        limit 1 offset v_share)) e));
  if exists (select from mdm.aa_audit_log a where a.id < o_entry order by a.id desc limit 1) then
    -- only ours are known to be stamped with the clock
    o_since := greatest(o_since, c_statement + coalesce((
      select max(e.occurred_at)
      from (
        select a.occurred_at
        from mdm.aa_audit_log a
        where a.id >= o_entry
          and a.object_type = 'job'
        order by a.id
        limit c_batches) e), 'infinity'));
  end if;
end
$$;

comment on function mdm._audit_slice(timestamptz, int, int) is
  'Which ended jobs (after o_since) and which audit rows (ids from o_entry on) can be checked against each other quickly. Private.';
