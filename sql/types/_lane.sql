-- What a claim knows of a lane that has a due job: its place in the order and its first job. Private.
do $$
begin
  create type mdm._lane as (
    job_kind text,
    tenant_id uuid,
    priority int,
    available_at timestamptz,
    run_alone boolean);
exception
  when duplicate_object then null;
end
$$;

comment on type mdm._lane is 'A lane of the claim index with its first due job; tenant_id is NULL for a claim over all tenants. Private.';
