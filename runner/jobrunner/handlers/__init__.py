"""The handlers that come with the package: job kind -> function. Other packages bring theirs by entry point."""

from __future__ import annotations

from jobrunner.handlers.cleanup_jobs import cleanup_jobs
from jobrunner.handlers.reindex import reindex
from jobrunner.job import Handler

HANDLERS: dict[str, Handler] = {
    "cleanup_jobs": cleanup_jobs,
    "reindex": reindex,
}
