-- Who may call what (design 3). Run as mdm_owner; applied again by every migrate, so a right that is taken out here goes away.
-- Nobody but the owner has rights on the tables: everything goes through the functions and views.

-- producers: S10.1
grant execute on function
  mdm.enqueue_job(text, jsonb, uuid, text, text, int, timestamptz, int, jsonb, uuid),
  mdm.enqueue_jobs(jsonb, uuid),
  mdm.get_job(bigint)
to mdm_producer, mdm_admin;

-- workers: S4, S5
grant execute on function
  mdm.claim_job(text, text[], uuid[], int, jsonb),
  mdm.check_lease(bigint, bigint),
  mdm.finish_job(bigint, bigint, uuid),
  mdm.finish_jobs(bigint[], bigint[], uuid),
  mdm.fail_job(bigint, bigint, text, boolean, interval, uuid),
  mdm.release_job(bigint, bigint, interval, text),
  mdm.release_jobs(bigint[], bigint[], interval[]),
  mdm.extend_jobs(bigint[], bigint[]),
  mdm.announce_runner(text, text[], uuid[], boolean),
  mdm.job_kind_settings(text[]),
  mdm.rate_limits(text[]),
  mdm.check_tenants(uuid[]),
  mdm.get_job(bigint)
to mdm_worker;

-- the kinds
grant execute on function mdm.reindex_chunk(bigint, bigint, int) to mdm_worker;
grant execute on function mdm.request_reindex(uuid, text, uuid) to mdm_producer, mdm_admin;
-- email_send (S2.1)
grant execute on function
  mdm.send_email(uuid, text[], text, text, text, text, text, text, timestamptz, jsonb, uuid)
to mdm_producer, mdm_admin;
grant execute on function
  mdm.mark_email(bigint, bigint, text, text, text, text),
  mdm.record_email(bigint, bigint, text, text, text)
to mdm_worker;
grant execute on function
  mdm.sync_index(bigint, bigint),
  mdm.wants_index(bigint, bigint, text),
  mdm.fail_index(bigint, bigint, text),
  mdm.attachment_to_scan(bigint, bigint),
  mdm.record_scan(bigint, bigint, text, bigint, text),
  mdm.fail_scan(bigint, bigint, text, bigint, text, boolean)
to mdm_worker;
-- the DDL connection of index_sync and gin_backfill
grant execute on function mdm.lock_index_builds() to mdm_indexer;
-- the triggers of our stand-ins: their owner must be allowed to call what they run
grant execute on function mdm.enqueue_index_sync(), mdm.enqueue_gin_backfill(), mdm.enqueue_virus_scan() to mdm_platform;
-- outbox_dispatch (S2.4)
grant execute on function mdm.enqueue_outbox_dispatch() to mdm_platform;
grant execute on function
  mdm.claim_deliveries(bigint, bigint, int, int),
  mdm.record_deliveries(bigint, bigint, jsonb),
  mdm.enqueue_next_dispatch(bigint, bigint)
to mdm_worker;
grant execute on function mdm.replay_deliveries(uuid, bigint, int, text, uuid) to mdm_admin;
grant execute on function
  mdm.wake_outbox(),
  mdm.give_up_deliveries(int),
  mdm.settle_emails(),
  mdm.settle_index_status(),
  mdm.settle_imports(),
  mdm.settle_scans()
to mdm_worker, mdm_admin;
grant select on mdm.v_webhook_dlq to mdm_monitor, mdm_admin;
-- bulk_import (S2.2)
grant execute on function mdm.enqueue_bulk_import() to mdm_platform;
grant execute on function
  mdm.import_chunk(bigint, bigint, int, text),
  mdm.fail_import(bigint, bigint, text)
to mdm_worker;
-- pure; the trigger of our stand-in calls it with the rights of the writer
grant execute on function mdm._entity_search_vector(jsonb, text[]) to mdm_platform;

-- administrators: manage_metadata (S9, D12)
grant execute on function
  mdm.replay_job(bigint, text, uuid),
  mdm.discard_job(bigint, text, uuid),
  mdm.stop_job(bigint, text, uuid),
  mdm.replay_jobs(jsonb, int, boolean, text, uuid),
  mdm.discard_jobs(jsonb, int, boolean, text, uuid),
  mdm.set_job_kind(text, jsonb, uuid),
  mdm.pause_kind(text, timestamptz, text, uuid),
  mdm.resume_kind(text, uuid),
  mdm.set_default_rate_limits(uuid, text[], double precision, int),
  mdm.job_kind_settings(text[]),
  mdm.rate_limits(text[])
to mdm_admin;

-- upkeep (D17)
grant execute on function
  mdm.recover_stale_jobs(int),
  mdm.purge_jobs(int),
  mdm.cleanup_step(int),
  mdm.compact_outbox(int),
  mdm.watch_invariants()
to mdm_worker, mdm_admin;
grant execute on procedure mdm.cleanup_jobs(interval) to mdm_worker, mdm_admin;

-- jobs without a runner, and pg_cron as the driver (S13.4): an administrator's role works them off
grant execute on procedure mdm.run_sql_jobs(text[], int) to mdm_worker, mdm_admin;
grant execute on function
  mdm.claim_job(text, text[], uuid[], int, jsonb),
  mdm.fail_job(bigint, bigint, text, boolean, interval, uuid)
to mdm_admin;
grant execute on function mdm.run_sql_job_step(bigint, bigint) to mdm_worker, mdm_admin;
grant execute on function
  mdm.schedule_cleanup(),
  mdm.unschedule_cleanup(),
  mdm._raise(text, text, text, text),
  mdm._check_cron(),
  mdm._cron_entries()
to mdm_admin;

-- the views of jobs call these with the rights of their reader
grant execute on function mdm.find_jobs(mdm.job_status), mdm.find_holders(xid), mdm.find_entries(bigint) to mdm_monitor, mdm_admin;
grant execute on function mdm.count_jobs(text, text), mdm.oldest_due(text) to mdm_worker, mdm_monitor, mdm_admin;

-- every runner exports the gauges (D18)
grant execute on function mdm.job_metrics() to mdm_worker;

-- watching (S12). _redact is pure; the views call it with the rights of their reader.
grant execute on function
  mdm.check_job_invariants(timestamptz, bigint, bigint, bigint),
  mdm.explain_job(bigint),
  mdm.job_metrics(),
  mdm._redact(jsonb, text[])
to mdm_monitor, mdm_admin;
grant select on mdm.v_job_dlq, mdm.v_job_running, mdm.v_job_stale, mdm.v_job_history, mdm.v_job_health, mdm.v_reindex_progress
to mdm_monitor, mdm_admin;
grant select on mdm.v_job_counts to mdm_monitor, mdm_admin, mdm_worker;

grant execute on function mdm.job_schema_version() to public;
