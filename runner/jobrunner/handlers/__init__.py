"""The handlers that come with the package: job kind -> function. Other packages bring theirs by entry point."""

from __future__ import annotations

from jobrunner.handlers.bulk_import import bulk_import
from jobrunner.handlers.cleanup_jobs import cleanup_jobs
from jobrunner.handlers.email_send import email_send
from jobrunner.handlers.index_builds import build_index
from jobrunner.handlers.outbox_dispatch import outbox_dispatch
from jobrunner.handlers.reindex import reindex
from jobrunner.handlers.virus_scan import virus_scan
from jobrunner.job import Handler

HANDLERS: dict[str, Handler] = {
    "bulk_import": bulk_import,
    "cleanup_jobs": cleanup_jobs,
    "email_send": email_send,
    "gin_backfill": build_index,
    "index_sync": build_index,
    "outbox_dispatch": outbox_dispatch,
    "reindex": reindex,
    "virus_scan": virus_scan,
}
