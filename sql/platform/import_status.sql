-- Stand-in for the platform's type (D20): how far an upload came.
do $$
begin
  create type mdm.import_status as enum ('uploading', 'pending', 'running', 'done', 'failed');
  comment on type mdm.import_status is 'State of an upload (S2.2): uploading is not complete yet, pending waits for its job, running, done (with or without rejected rows), failed.';
exception
  when duplicate_object then null;
end
$$;
