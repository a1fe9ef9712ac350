-- The upload that a bulk_import is about (S2.2), locked: two jobs of one upload take turns, and no row is theirs twice.
create or replace function mdm._lock_import(p_job_id bigint)
returns mdm.aa_import
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_job record;
  v_import mdm.aa_import;
begin
  select j.job_kind, j.tenant_id, j.payload
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id;
  if v_job.job_kind <> 'bulk_import' then
    perform mdm._raise('MJ005', format('job %s is no bulk_import', p_job_id), format('job_kind: %s', v_job.job_kind),
      'Claim jobs of kind bulk_import for it.');
  end if;
  select i.*
  into v_import
  from mdm.aa_import i
  where i.id = mdm._uuid_of(v_job.payload ->> 'import_id')
    and i.tenant_id = v_job.tenant_id
  for no key update;
  if not found then
    perform mdm._raise('MJ005', 'the payload names no upload of this tenant',
      format('import_id: %s', left(coalesce(v_job.payload ->> 'import_id', 'NULL'), 100)),
      'Give {"import_id": "<id of mdm.aa_import>"} and its tenant; usually the trigger of mdm.aa_import does it.');
  elsif v_import.status = 'uploading' then
    perform mdm._raise('MJ005', format('upload %s is not complete', v_import.id), null,
      'Set its status to pending when all rows are in: that enqueues the job.');
  end if;
  return v_import;
end
$$;

comment on function mdm._lock_import(bigint) is 'The upload of a bulk_import job, locked; MJ005 when there is none or it is not complete. Private.';
