-- Stand-in for the platform's outbox (D20): events for external consumers, dispatched by outbox_dispatch (S1.2, S2.4). A row has a
-- state of its own; a cursor over ids would miss what commits late.
do $$
begin
  if to_regclass('mdm.aa_outbox_event') is not null then
    return;
  end if;

  create table mdm.aa_outbox_event (
    id bigint generated always as identity primary key,
    tenant_id uuid references mdm.aa_tenant (id),
    event_type text not null,
    object_type text not null default '',
    object_id text,
    payload jsonb not null default '{}',
    created_at timestamptz not null default clock_timestamp(),
    planned_at timestamptz,
    dispatched_at timestamptz
  );

  -- what has no deliveries yet, oldest first
  create index ix_aa_outbox_event_unplanned on mdm.aa_outbox_event (id) where planned_at is null and dispatched_at is null;
  -- what the compaction deletes
  create index ix_aa_outbox_event_dispatched on mdm.aa_outbox_event (dispatched_at) where dispatched_at is not null;
  -- the foreign key
  create index ix_aa_outbox_event_tenant on mdm.aa_outbox_event (tenant_id);

  comment on table mdm.aa_outbox_event is 'Events for external consumers (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_outbox_event.id is 'The event.';
  comment on column mdm.aa_outbox_event.tenant_id is 'The tenant that it concerns, NULL = the platform.';
  comment on column mdm.aa_outbox_event.event_type is 'What happened, for instance entity.updated.';
  comment on column mdm.aa_outbox_event.object_type is 'Kind of object that it happened to.';
  comment on column mdm.aa_outbox_event.object_id is 'Id of that object.';
  comment on column mdm.aa_outbox_event.payload is 'What consumers get.';
  comment on column mdm.aa_outbox_event.created_at is 'When it happened.';
  comment on column mdm.aa_outbox_event.planned_at is 'When its deliveries were made, one an endpoint that wants it; NULL = not yet.';
  comment on column mdm.aa_outbox_event.dispatched_at is
    'When its last delivery came to an end, NULL = not yet; deleted some time later by compact_outbox (S2.5).';
end
$$;
