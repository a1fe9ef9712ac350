-- What has no state, in order: applied again by every migrate, so upgrading a function is editing its file.

-- [rights on the platform's tables]
\ir roles/as_installer.sql
\ir platform/grants.sql

-- [internal]
\ir roles/as_owner.sql
\ir internal/_raise.sql
\ir internal/_raise_lease_lost.sql
\ir internal/_actor.sql
\ir internal/_audit.sql
\ir internal/_backoff.sql
\ir internal/_clamp_delay.sql
\ir internal/_cut_bytes.sql
\ir internal/_recovery_note.sql
\ir internal/_redact.sql
\ir internal/_newest_of_key.sql
\ir internal/_retire_superseded.sql
\ir internal/_refuse_enqueue.sql
\ir internal/_update_pending.sql
\ir internal/_enqueue_keyed.sql
\ir internal/_parse_jobs.sql
\ir internal/_lock_leased.sql
\ir internal/_lock_leased_many.sql
\ir internal/_release_locked.sql
\ir internal/_lane_head.sql
\ir internal/_lane_after.sql
\ir internal/_first_lanes.sql
\ir internal/_first_level.sql
\ir internal/_next_lanes.sql
\ir internal/_shares.sql
\ir internal/_lock_lane.sql
\ir internal/_lock_level.sql
\ir internal/_cut_before_alone.sql
\ir internal/_pick_jobs.sql
\ir internal/_check_floor.sql
\ir internal/_recover_locked.sql
\ir internal/_note_upkeep.sql
\ir internal/_forget_progress.sql
\ir internal/_delete_jobs.sql
\ir internal/_lock_for_admin.sql
\ir internal/_replay_locked.sql
\ir internal/_lock_dead.sql
\ir internal/_jobs_ahead.sql
\ir internal/_check_cron.sql
\ir internal/_cron_entries.sql
\ir internal/_entity_search_vector.sql
\ir internal/_entity_writers.sql
\ir internal/_reindex_type.sql
\ir internal/_reindex_digest.sql
\ir internal/_reindex_progress.sql
\ir internal/_reindex_rows.sql
\ir internal/_lock_entities.sql
\ir internal/_build_vectors.sql
\ir internal/_store_reindex.sql

-- [functions]
\ir functions/enqueue_job.sql
\ir functions/enqueue_jobs.sql
\ir functions/get_job.sql
\ir functions/claim_job.sql
\ir functions/check_lease.sql
\ir functions/finish_job.sql
\ir functions/finish_jobs.sql
\ir functions/fail_job.sql
\ir functions/release_job.sql
\ir functions/release_jobs.sql
\ir functions/extend_jobs.sql
\ir functions/announce_runner.sql
\ir functions/replay_job.sql
\ir functions/discard_job.sql
\ir functions/stop_job.sql
\ir functions/replay_jobs.sql
\ir functions/discard_jobs.sql
\ir functions/set_job_kind.sql
\ir functions/pause_kind.sql
\ir functions/resume_kind.sql
\ir functions/job_kind_settings.sql
\ir functions/rate_limits.sql
\ir functions/recover_stale_jobs.sql
\ir functions/purge_jobs.sql
\ir functions/compact_outbox.sql
\ir functions/cleanup_jobs.sql
\ir functions/run_sql_job_step.sql
\ir functions/run_sql_jobs.sql
\ir functions/explain_job.sql
\ir functions/job_metrics.sql
\ir functions/check_job_invariants.sql
\ir functions/job_schema_version.sql

-- [kinds]
\ir kinds/reindex_chunk.sql

-- [trigger of our stand-in for ddm_entity]
\ir roles/as_platform.sql
\ir platform/ddm_entity_search_vector.sql
\ir roles/as_owner.sql

-- [views]
\ir views/v_job_dlq.sql
\ir views/v_job_counts.sql
\ir views/v_job_running.sql
\ir views/v_job_stale.sql
\ir views/v_job_history.sql
\ir views/v_job_health.sql

-- [pg_cron]
\ir functions/schedule_cleanup.sql
\ir functions/unschedule_cleanup.sql

-- [grants]
\ir grants.sql
\ir roles/as_installer.sql
