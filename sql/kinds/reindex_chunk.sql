-- One chunk of a reindex (S2.3): the next rows of the job's tenant and type, in the order of (tenant, type, id) from the stored
-- position. Caller commits; the last chunk's transaction carries finish_job (D24).
create or replace function mdm.reindex_chunk(p_job_id bigint, p_lease_no bigint, p_limit int default 1000)
returns table (rows_rebuilt int, rows_changed int, is_last boolean, blocked_by text)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
-- the bounds below are worth a plan of their own: one made for an empty table would sort everything
set plan_cache_mode = force_custom_plan
-- words longer than 2 kB are left out with a notice each
set client_min_messages = warning
as $$
declare
  v_limit int := coalesce(p_limit, 1000);
  v_job mdm.aa_job;
  v_type_id uuid;
  v_progress mdm.aa_reindex_progress;
  v_rows record;
  v_locked uuid[];
  v_blocked_at uuid;
  v_last int;
begin
  if v_limit not between 1 and 10000 then
    perform mdm._raise('MJ005', 'p_limit is out of range', format('p_limit: %s', p_limit), 'Use 1 to 10,000 rows, or NULL for 1,000.');
  end if;
  perform mdm.check_lease(p_job_id, p_lease_no);
  -- says to mdm._entity_writers what this transaction is
  perform pg_advisory_xact_lock_shared(1835298162, 0);
  select j.*
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id;
  if v_job.job_kind <> 'reindex' then
    perform mdm._raise('MJ005', format('job %s is no reindex', p_job_id), format('job_kind: %s', v_job.job_kind),
      'Claim jobs of kind reindex for it.');
  end if;
  v_type_id := mdm._reindex_type(v_job.payload);
  v_progress := mdm._reindex_progress(p_job_id, v_job.tenant_id, v_type_id);
  if v_progress.waits_for <> '{}' and v_progress.waits_for && mdm._entity_writers() then
    return query select 0, 0, false, 'transactions that write to ddm_entity since before this pass'::text;
    return;
  end if;

  v_rows := mdm._reindex_rows(v_job.tenant_id, v_type_id, v_progress, v_limit);
  select l.locked, l.blocked_at
  into v_locked, v_blocked_at
  from mdm._lock_entities(v_rows.ids) l;
  rows_rebuilt := cardinality(v_locked);
  rows_changed := mdm._build_vectors(v_locked);
  is_last := v_blocked_at is null and cardinality(v_rows.ids) < v_limit;
  blocked_by := 'a transaction that holds entity ' || v_blocked_at;
  -- the place where the rows were found, not where a writer may have moved the last one
  v_last := array_position(v_rows.ids, v_locked[rows_rebuilt]);
  perform mdm._store_reindex(p_job_id, v_rows.tenant_ids[v_last], v_rows.entity_type_ids[v_last], v_rows.ids[v_last],
    rows_rebuilt, rows_changed);
  return next;
end
$$;

comment on function mdm.reindex_chunk(bigint, bigint, int) is
  'Rebuilds search_vector of the next p_limit rows of a claimed reindex job and stores its position, in the caller''s transaction (S2.3, D24). '
  'Payload {"entity_type": "<type_key>"} or {} for all types; a job without tenant means all tenants. rows_rebuilt = rows looked at, '
  'rows_changed = vectors written; is_last: nothing is left, finish the job in this transaction. Never waits for a row: blocked_by says who '
  'stands in the way, commit and call again later. When attributes become searchable or cease to be, the pass starts anew. '
  'MJ001 lease lost, MJ005 bad payload, unknown type or p_limit outside 1 to 10,000.';
