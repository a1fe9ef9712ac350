-- Stand-in for the platform's deliveries (D20): one row an event and endpoint (S2.4).
do $$
begin
  if to_regclass('mdm.aa_webhook_delivery') is not null then
    return;
  end if;

  create table mdm.aa_webhook_delivery (
    event_id bigint not null references mdm.aa_outbox_event (id) on delete cascade,
    endpoint_id uuid not null references mdm.aa_webhook_endpoint (id) on delete cascade,
    status mdm.webhook_delivery_status not null default 'pending',
    attempts int not null default 0,
    available_at timestamptz not null default clock_timestamp(),
    job_id bigint,
    lease_no bigint,
    response_status int,
    last_error text,
    created_at timestamptz not null default clock_timestamp(),
    completed_at timestamptz,
    primary key (event_id, endpoint_id),
    constraint aa_webhook_delivery_attempts_check check (attempts >= 0),
    constraint aa_webhook_delivery_completed_check check ((status in ('delivered', 'dlq')) = (completed_at is not null))
  );

  -- what an endpoint is to get next
  create index ix_aa_webhook_delivery_due on mdm.aa_webhook_delivery (endpoint_id, available_at, event_id)
    where status in ('pending', 'failed');
  -- what is being posted
  create index ix_aa_webhook_delivery_posting on mdm.aa_webhook_delivery (endpoint_id) where job_id is not null;
  -- what was given up
  create index ix_aa_webhook_delivery_dlq on mdm.aa_webhook_delivery (endpoint_id, event_id) where status = 'dlq';
  -- the foreign key
  create index ix_aa_webhook_delivery_endpoint on mdm.aa_webhook_delivery (endpoint_id);

  comment on table mdm.aa_webhook_delivery is 'Events on their way to endpoints (a stand-in where the platform brings none, D20).';
  comment on column mdm.aa_webhook_delivery.event_id is 'The event.';
  comment on column mdm.aa_webhook_delivery.endpoint_id is 'Where it goes.';
  comment on column mdm.aa_webhook_delivery.status is 'How far it came.';
  comment on column mdm.aa_webhook_delivery.attempts is 'Posts so far.';
  comment on column mdm.aa_webhook_delivery.available_at is 'Not posted before.';
  comment on column mdm.aa_webhook_delivery.job_id is 'The job that is posting it, NULL = none; counts for as long as that job runs under lease_no.';
  comment on column mdm.aa_webhook_delivery.lease_no is 'The lease of that job.';
  comment on column mdm.aa_webhook_delivery.response_status is 'HTTP status of the last answer, NULL = there was none.';
  comment on column mdm.aa_webhook_delivery.last_error is 'Why the last post failed.';
  comment on column mdm.aa_webhook_delivery.created_at is 'When the delivery was planned.';
  comment on column mdm.aa_webhook_delivery.completed_at is 'When it ended; set exactly in delivered and dlq.';
end
$$;
