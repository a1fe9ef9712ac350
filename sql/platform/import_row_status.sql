-- Stand-in for the platform's type (D20): what became of one row of an upload.
do $$
begin
  create type mdm.import_row_status as enum ('pending', 'imported', 'rejected');
  comment on type mdm.import_row_status is 'State of one row of an upload (S2.2): pending, imported, rejected (error says why).';
exception
  when duplicate_object then null;
end
$$;
