-- Trigger function for the outbox (S2.4): the statement that writes events enqueues one outbox_dispatch in its own transaction, so a
-- run after their commit exists by construction. No key: transactions would wait for each other's commit. The job is the platform's, or of
-- one of the tenants that the login is bound to, which may enqueue for these only.
create or replace function mdm.enqueue_outbox_dispatch()
returns trigger
language plpgsql
volatile
parallel unsafe
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform mdm.enqueue_job('outbox_dispatch', p_tenant_id => (mdm._bound_tenants())[1]);
  return null;
end
$$;

comment on function mdm.enqueue_outbox_dispatch() is
  'Trigger function, after insert for each statement on mdm.aa_outbox_event: enqueues outbox_dispatch (S2.4). Works with the rights of mdm_owner, whoever writes.';
