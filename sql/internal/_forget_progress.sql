-- Forgets how far jobs have come: called where jobs are deleted (purge, discard) or start from the beginning (replay).
create or replace function mdm._forget_progress(p_job_ids bigint[])
returns void
language sql
volatile
parallel unsafe
security invoker
as $$
  delete from mdm.aa_reindex_progress p
  where p.job_id = any(p_job_ids);
$$;

comment on function mdm._forget_progress(bigint[]) is 'Deletes what the kinds remember of the progress of these jobs. Private.';
