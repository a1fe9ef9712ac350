-- Where a claim stands in a kind (and tenant): at a lane that it may take from. Private.
do $$
begin
  create type mdm._lane as (
    job_kind text,
    tenant_id uuid,
    priority bigint,
    available_at timestamptz,
    floored boolean);
exception
  when duplicate_object then null;
end
$$;

comment on type mdm._lane is 'A lane of the claim index, to be read from available_at on; tenant_id is NULL for a claim over all tenants, floored: given by p_floor. A priority below every int stands before the first lane. Private.';
