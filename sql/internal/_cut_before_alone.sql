-- Ends a batch before the first job that runs alone; when that is the very first, it is the batch (D3). The rows after the cut stay
-- locked until the claim commits, which is at once.
create or replace function mdm._cut_before_alone(p_ids bigint[])
returns bigint[]
language plpgsql
stable
parallel safe
security invoker
as $$
begin
  return (
    select coalesce(array_agg(r.id), '{}')
    from (
      select j.id,
        row_number() over so_far as place,
        count(*) filter (where j.run_alone) over so_far as alone
      from mdm.aa_job j
      where j.id = any (p_ids)
      window so_far as (order by j.priority, j.available_at, j.id rows unbounded preceding)) r
    where r.alone = 0
      or r.place = 1);
end
$$;

comment on function mdm._cut_before_alone(bigint[]) is
  'The ids up to the first job that runs alone, or that one by itself when it is the first (D3). Private.';
