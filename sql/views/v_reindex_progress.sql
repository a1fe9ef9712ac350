-- How far each reindex has come that is not done (S2.3). What is registered is counted when somebody looks: about 0.2 s for a million
-- rows.
create or replace view mdm.v_reindex_progress as
select j.id, j.status, j.tenant_id, t.type_key,
  p.rows_rebuilt, r.rows_registered,
  -- a row that was added behind the position is right already, and never rebuilt
  case when r.rows_registered = 0 then 100 else least(round(100.0 * p.rows_rebuilt / r.rows_registered, 1), 100) end as percent,
  p.rows_changed, p.started_at, p.updated_at as last_chunk_at
from mdm.aa_reindex_progress p
join mdm.aa_job j on j.id = p.job_id
left join mdm.ddm_entity_type t on t.type_key = j.payload ->> 'entity_type'
cross join lateral (
  -- row comparisons, as in mdm._reindex_rows: the index on (tenant, type, id) serves every scope
  select count(*) as rows_registered
  from mdm.ddm_entity e
  where (e.tenant_id, e.entity_type_id) >= (
      coalesce(j.tenant_id, '00000000-0000-0000-0000-000000000000'), coalesce(t.id, '00000000-0000-0000-0000-000000000000'))
    and (e.tenant_id, e.entity_type_id) <= (
      coalesce(j.tenant_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), coalesce(t.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    and (t.id is null or e.entity_type_id = t.id)
) r
where j.status <> 'done'
order by p.started_at, j.id;

comment on view mdm.v_reindex_progress is 'Progress of each reindex that has begun and is not done (S2.3).';
comment on column mdm.v_reindex_progress.id is 'The job.';
comment on column mdm.v_reindex_progress.status is 'Its state; pending = waits for its next turn and goes on where it stood.';
comment on column mdm.v_reindex_progress.tenant_id is 'Tenant whose entities it rebuilds, NULL = all.';
comment on column mdm.v_reindex_progress.type_key is 'Type that it rebuilds, NULL = all.';
comment on column mdm.v_reindex_progress.rows_rebuilt is 'Rows of this pass whose vector is right.';
comment on column mdm.v_reindex_progress.rows_registered is 'Entities of that tenant and type now.';
comment on column mdm.v_reindex_progress.percent is 'rows_rebuilt of rows_registered, at most 100.';
comment on column mdm.v_reindex_progress.rows_changed is 'Those whose vector had been another one and was written.';
comment on column mdm.v_reindex_progress.started_at is 'When this pass began; it begins anew when other attributes become searchable.';
comment on column mdm.v_reindex_progress.last_chunk_at is 'When the last chunk was written.';
