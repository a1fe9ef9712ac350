-- Stand-in for the platform's webhook consumers (D20, S2.4).
do $$
begin
  if to_regclass('mdm.aa_webhook_endpoint') is not null then
    return;
  end if;

  create table mdm.aa_webhook_endpoint (
    id uuid primary key default gen_random_uuid(),
    tenant_id uuid not null references mdm.aa_tenant (id) on delete cascade,
    url text not null,
    secret text not null,
    event_types text[] not null default '{}',
    enabled boolean not null default true,
    failures int not null default 0,
    paused_until timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    constraint aa_webhook_endpoint_url_check check (url ~ '^https?://')
  );

  -- the foreign key
  create index ix_aa_webhook_endpoint_tenant on mdm.aa_webhook_endpoint (tenant_id);

  comment on table mdm.aa_webhook_endpoint is 'Consumers of events (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_webhook_endpoint.id is 'The endpoint.';
  comment on column mdm.aa_webhook_endpoint.tenant_id is 'The tenant whose events it gets.';
  comment on column mdm.aa_webhook_endpoint.url is 'Where events are posted to.';
  comment on column mdm.aa_webhook_endpoint.secret is 'Key of the signature: whsec_ and base64 (Standard Webhooks).';
  comment on column mdm.aa_webhook_endpoint.event_types is 'Event types that it wants, empty = all.';
  comment on column mdm.aa_webhook_endpoint.enabled is 'false: gets nothing.';
  comment on column mdm.aa_webhook_endpoint.failures is 'Posts without any answer since the last answer; after one, a single post at a time tries again.';
  comment on column mdm.aa_webhook_endpoint.paused_until is 'It did not answer: nothing is posted to it before this time, NULL = it is not paused.';
  comment on column mdm.aa_webhook_endpoint.created_at is 'When it was registered.';
end
$$;
