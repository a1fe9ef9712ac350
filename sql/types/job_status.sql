-- The life cycle of a job (S5).
do $$
begin
  create type mdm.job_status as enum ('pending', 'running', 'done', 'failed', 'dlq');
exception
  when duplicate_object then null;
end
$$;

comment on type mdm.job_status is
  'Life cycle of a job (S5): pending waits, running is claimed, done succeeded, failed was stopped by hand (S5.4), dlq is dead (S5.3).';
