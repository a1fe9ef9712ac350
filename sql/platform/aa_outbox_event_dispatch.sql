-- Enqueues outbox_dispatch when events are written (S2.4). Made on our stand-in; on a platform's own table by its owner's choice.
do $$
begin
  if (select c.relowner from pg_catalog.pg_class c where c.oid = 'mdm.aa_outbox_event'::regclass) = 'mdm_platform'::regrole then
    create or replace trigger aa_outbox_event_dispatch
      after insert on mdm.aa_outbox_event
      for each statement
      execute function mdm.enqueue_outbox_dispatch();
  end if;
end
$$;
