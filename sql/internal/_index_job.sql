-- A claimed index_sync or gin_backfill (S2.7, S2.8): what it is about, and which index is wanted there now. The payload only names
-- the place; what is wanted is read from the platform's tables each time, so that a toggle back and forth needs no order of jobs.
create or replace function mdm._index_job(
  p_job_id bigint,
  p_lease_no bigint,
  out job_kind text,
  out is_last boolean,
  out entity_type_id uuid,
  out key text,
  out index_name text,
  out definition text)
returns record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_job mdm.aa_job;
  v_key_name text;
begin
  perform mdm.check_lease(p_job_id, p_lease_no);
  select j.*
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id;
  job_kind := v_job.job_kind;
  is_last := v_job.attempts >= v_job.max_attempts;
  v_key_name := case job_kind when 'index_sync' then 'attribute_key' when 'gin_backfill' then 'type_key' end;
  if v_key_name is null then
    perform mdm._raise('MJ005', format('job %s builds no index', p_job_id), format('job_kind: %s', job_kind),
      'Claim jobs of the kinds index_sync and gin_backfill for it.');
  end if;

  key := v_job.payload ->> v_key_name;
  entity_type_id := mdm._uuid_of(v_job.payload ->> 'entity_type_id');
  if coalesce(key, '') = '' or (job_kind = 'index_sync' and entity_type_id is null) then
    perform mdm._raise('MJ005', format('the payload of %s names no %s', job_kind, v_key_name),
      format('payload: %s', left(v_job.payload::text, 200)),
      case job_kind when 'index_sync' then 'Give {"entity_type_id": "<uuid>", "attribute_key": "<key>"}.'
        else 'Give {"type_key": "<key>"}.' end);
  end if;
  if job_kind = 'index_sync' then
    select i.index_name, i.definition into index_name, definition from mdm._attribute_index(entity_type_id, key) i;
  else
    select i.index_name, i.definition into index_name, definition from mdm._gin_index(key) i;
  end if;
end
$$;

comment on function mdm._index_job(bigint, bigint) is
  'Checks lease and payload of a claimed index job and says which index is wanted (definition NULL = none) and whether this is the last attempt. MJ001, MJ005. Private.';
