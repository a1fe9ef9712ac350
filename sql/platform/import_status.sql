-- Stand-in for the platform's type (D20): how far an upload came.
do $$
begin
  create type mdm.import_status as enum ('pending', 'running', 'done', 'failed');
  comment on type mdm.import_status is 'State of an upload (S2.2): pending waits for its job, running, done (with or without rejected rows), failed.';
exception
  when duplicate_object then null;
end
$$;
