-- The payloads of a kind's jobs that wait or run. Two probes, since one with "status in" uses none of the partial indexes.
create or replace function mdm._open_payloads(p_job_kind text, p_without bigint[])
returns setof jsonb
language sql
stable
parallel safe
security invoker
as $$
  select j.payload
  from mdm.aa_job j
  where j.job_kind = p_job_kind
    and j.status = 'pending'
    and not exists (select from unnest(p_without) w (id) where w.id = j.id)
  union all
  select j.payload
  from mdm.aa_job j
  where j.job_kind = p_job_kind
    and j.status = 'running';
$$;

comment on function mdm._open_payloads(text, bigint[]) is
  'The payload of each pending or running job of a kind that the login may see, but for the pending ones p_without. Private.';
