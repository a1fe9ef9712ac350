-- What a claim has locked so far. Private.
do $$
begin
  create type mdm._picked as (
    ids bigint[],
    alone boolean,
    keyed boolean);
exception
  when duplicate_object then null;
end
$$;

comment on type mdm._picked is 'Jobs that a claim has locked, and whether one of them runs alone (D3) or has a key (D6). Private.';
