-- Stand-in for the platform's type (D20): where an index of the platform stands.
do $$
begin
  create type mdm.index_status as enum ('none', 'building', 'active', 'failed');
  comment on type mdm.index_status is 'State of the index behind an attribute or a type (S2.7): none is wanted, building, active, failed.';
exception
  when duplicate_object then null;
end
$$;
