-- Stand-in for the platform's type (D20): how far an event came on its way to one endpoint.
do $$
begin
  create type mdm.webhook_delivery_status as enum ('pending', 'delivered', 'failed', 'dlq');
  comment on type mdm.webhook_delivery_status is 'State of one event on its way to one endpoint (S2.4): pending, delivered, failed (tried again later), dlq (given up).';
exception
  when duplicate_object then null;
end
$$;
