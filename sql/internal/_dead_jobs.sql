-- The dead and the stopped jobs of a kind: few, so what they left behind is looked for from here. A function because its plan has to be
-- pinned, as that of find_jobs: the upkeep must not read the whole table for them.
create or replace function mdm._dead_jobs(p_job_kind text)
returns bigint[]
language plpgsql
stable
parallel safe
security invoker
set enable_seqscan = off
set jit = off
as $$
begin
  return array(
    select j.id
    from mdm.aa_job j
    where j.status in ('dlq', 'failed')
      and j.job_kind = p_job_kind);
end
$$;

comment on function mdm._dead_jobs(text) is 'Ids of the jobs of a kind that are dlq or failed and that the login may see. Private.';
