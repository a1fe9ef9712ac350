-- A claimed virus_scan (S2.6): checks lease and payload and names the attachment and its tenant.
create or replace function mdm._scan_job(
  p_job_id bigint,
  p_lease_no bigint,
  out attachment_id uuid,
  out tenant_id uuid,
  out is_last boolean)
returns record
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_job mdm.aa_job;
begin
  perform mdm.check_lease(p_job_id, p_lease_no);
  select j.*
  into v_job
  from mdm.aa_job j
  where j.id = p_job_id;
  if v_job.job_kind <> 'virus_scan' then
    perform mdm._raise('MJ005', format('job %s is no virus_scan', p_job_id), format('job_kind: %s', v_job.job_kind),
      'Claim jobs of kind virus_scan for it.');
  end if;
  attachment_id := mdm._uuid_of(v_job.payload ->> 'attachment_id');
  if attachment_id is null then
    perform mdm._raise('MJ005', 'the payload of virus_scan names no attachment', format('payload: %s', left(v_job.payload::text, 200)),
      'Give {"attachment_id": "<uuid>"}.');
  end if;
  tenant_id := v_job.tenant_id;
  is_last := v_job.attempts >= v_job.max_attempts;
end
$$;

comment on function mdm._scan_job(bigint, bigint) is
  'The attachment that a claimed virus_scan is about, its tenant, and whether this is the last attempt. MJ001, MJ005. Private.';
