-- One chunk of a bulk_import (S2.2): the next rows are checked and stored. Caller commits; the last chunk's transaction carries
-- finish_job (D24). What is decided stays decided: a crash resumes behind the last chunk that was committed.
create or replace function mdm.import_chunk(p_job_id bigint, p_lease_no bigint, p_limit int default 1000, p_reject text default null)
returns table (rows_imported int, rows_rejected int, is_last boolean)
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
-- the settings hold for the triggers of ddm_entity too: planning anew for each row would take longer than the rest, and a plan made
-- while the tables were empty must not read them whole
set enable_seqscan = off
set jit = off
set plan_cache_mode = force_generic_plan
-- words longer than 2 kB are left out of the vectors with a notice each
set client_min_messages = warning
as $$
declare
  v_limit int := coalesce(p_limit, 1000);
  v_import mdm.aa_import;
  v_until int;
  v_rows int;
begin
  if v_limit not between 1 and 10000 then
    perform mdm._raise('MJ005', 'p_limit is out of range', format('p_limit: %s', p_limit), 'Use 1 to 10,000 rows, or NULL for 1,000.');
  end if;
  perform mdm.check_lease(p_job_id, p_lease_no);
  v_import := mdm._lock_import(p_job_id);
  if v_import.status = 'done' then
    return query select 0, 0, true;
    return;
  elsif v_import.status = 'pending' or v_import.rows_total is null then
    perform mdm._begin_import(v_import);
    return query
    select 0, i.rows_rejected, false
    from mdm.aa_import i
    where i.id = v_import.id;
    return;
  end if;

  select max(n.row_no), count(*)
  into v_until, v_rows
  from (
    select r.row_no
    from mdm.aa_import_row r
    where r.import_id = v_import.id
      and r.row_no > v_import.last_row_no
    order by r.row_no
    limit v_limit
  ) n;
  update mdm.aa_import_row r
  set status = 'rejected',
    error = p.error
  from (
    select w.row_no, w.error from mdm._import_problems(v_import, v_until) w where p_reject is null
    union all
    select v_until, left(p_reject, 2000) where p_reject is not null and v_limit = 1
  ) p
  where r.import_id = v_import.id
    and r.row_no = p.row_no
    and r.status = 'pending';
  get diagnostics rows_rejected = row_count;
  rows_imported := mdm._store_import(v_import, v_until);
  is_last := v_rows < v_limit;

  update mdm.aa_import i
  set status = case when is_last then 'done' else 'running' end::mdm.import_status,
    rows_imported = i.rows_imported + import_chunk.rows_imported,
    rows_rejected = i.rows_rejected + import_chunk.rows_rejected,
    last_row_no = coalesce(v_until, i.last_row_no),
    report = case when is_last then mdm._import_report(i.id) end,
    error = null,
    completed_at = case when is_last then clock_timestamp() end
  where i.id = v_import.id;
  return next;
end
$$;

comment on function mdm.import_chunk(bigint, bigint, int, text) is
  'Checks the next p_limit rows of a claimed bulk_import and stores the good ones in ddm_entity, in the caller''s transaction (S2.2, D24). The first call looks at the whole upload: of rows with the same key the last one counts. Bad rows are rejected and say why. is_last: the report is written, finish the job in this transaction. p_reject, with p_limit 1: reject the next row for this reason, since storing it failed. MJ001 lease lost, MJ005 no such upload, or p_limit outside 1 to 10,000.';
