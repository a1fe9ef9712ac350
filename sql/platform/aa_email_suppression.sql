-- Stand-in for the platform's list of addresses that get no email (D20, S2.1).
do $$
begin
  if to_regclass('mdm.aa_email_suppression') is not null then
    return;
  end if;

  create table mdm.aa_email_suppression (
    id bigint generated always as identity primary key,
    tenant_id uuid references mdm.aa_tenant (id) on delete cascade,
    address text not null,
    reason text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    constraint aa_email_suppression_address_check check (address = lower(address) and address <> '')
  );

  -- found by address, whatever the tenant
  create unique index uq_aa_email_suppression_address on mdm.aa_email_suppression (address, tenant_id) nulls not distinct;
  -- the foreign key
  create index ix_aa_email_suppression_tenant on mdm.aa_email_suppression (tenant_id);

  comment on table mdm.aa_email_suppression is 'Addresses that get no email (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_email_suppression.id is 'Row number.';
  comment on column mdm.aa_email_suppression.tenant_id is 'For whose email it holds, NULL = for everybody''s.';
  comment on column mdm.aa_email_suppression.address is 'The address in lower case.';
  comment on column mdm.aa_email_suppression.reason is 'bounce, complaint, unsubscribe ...';
  comment on column mdm.aa_email_suppression.created_at is 'Since when.';
end
$$;
