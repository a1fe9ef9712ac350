-- Asked while an index is being built: a toggle back ends the build early (S2.7, S2.8).
create or replace function mdm.wants_index(p_job_id bigint, p_lease_no bigint, p_statement text)
returns boolean
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job record;
begin
  v_job := mdm._index_job(p_job_id, p_lease_no);
  return coalesce(regexp_replace(v_job.definition, '^CREATE INDEX ', 'create index concurrently ') = p_statement, false);
end
$$;

comment on function mdm.wants_index(bigint, bigint, text) is
  'True while the build that mdm.sync_index gave out is still what the attribute or type wants. MJ001 lease lost, MJ005 bad payload.';
