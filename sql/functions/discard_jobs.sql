-- Deletes many dead jobs (S9.3): by filter, with a dry run unless told otherwise.
create or replace function mdm.discard_jobs(
  p_filter jsonb,
  p_limit int default 1000,
  p_dry_run boolean default true,
  p_reason text default null,
  p_actor_principal_id uuid default null)
returns table (job_id bigint, outcome text)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[] := array(select j.id from mdm._lock_dead(p_filter, coalesce(p_limit, 1000)) j);
begin
  if not coalesce(p_dry_run, true) then
    perform mdm._delete_jobs(v_ids, p_reason, p_actor_principal_id);
  end if;
  return query
    select d.id, case when coalesce(p_dry_run, true) then 'would_discard' else 'discarded' end
    from unnest(v_ids) d (id);
end
$$;

comment on function mdm.discard_jobs(jsonb, int, boolean, text, uuid) is
  'Deletes up to p_limit (1 .. 10,000) dlq jobs that p_filter names (keys as in replay_jobs), each with a job_discard audit row. Dry run unless p_dry_run is false. Outcomes discarded, would_discard. What they leave under way is failed as by discard_job; 55P03 somebody holds such a row. MJ005 bad filter, MJ006 empty filter without {"all": true}.';
