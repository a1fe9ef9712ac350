-- Raises MJ001 and tells in the detail what became of the lease (D2).
create or replace function mdm._raise_lease_lost(p_job_id bigint, p_lease_no bigint)
returns void
language plpgsql
volatile
parallel unsafe
security invoker
as $$
declare
  v_status mdm.aa_job.status%type;
  v_lease_no bigint;
  v_detail text;
begin
  select j.status, j.lease_no
  into v_status, v_lease_no
  from mdm.aa_job j
  where j.id = p_job_id;

  v_detail := case
    when not found then 'gone'
    when v_lease_no is null then 'recovered'
    when v_lease_no is distinct from p_lease_no then 'claimed again'
    when v_status = 'failed' then 'stopped'
    else 'already ended by this lease'
  end;
  perform mdm._raise('MJ001', format('lease lost on job %s', coalesce(p_job_id::text, 'NULL')), v_detail,
    'Roll back: whoever holds the job now does its work. Do not repeat the call.');
end
$$;

comment on function mdm._raise_lease_lost(bigint, bigint) is
  'Raises MJ001; detail: gone, recovered, claimed again, stopped or already ended by this lease (D2). Private.';
