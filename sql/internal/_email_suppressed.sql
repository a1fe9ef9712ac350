-- Whether an address gets no email (S2.1): asked when it would be sent, not when it was enqueued.
create or replace function mdm._email_suppressed(p_tenant_id uuid, p_address text)
returns boolean
language sql
stable
parallel safe
security invoker
as $$
  select exists (
    select
    from mdm.aa_email_suppression s
    where s.address = lower(p_address)
      and (s.tenant_id is null or s.tenant_id = p_tenant_id));
$$;

comment on function mdm._email_suppressed(uuid, text) is 'Whether the address is suppressed for this tenant or for everybody. Private.';
