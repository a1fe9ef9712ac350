"""The job kind cleanup_jobs (S2.5): a third driver of the upkeep, beside the keepers and pg_cron (D17)."""

from __future__ import annotations

from typing import Final, TypeVar

from jobrunner.db.call import Call, read, send
from jobrunner.db.upkeep import compact_outbox, purge_jobs, recover_stale_jobs, wake_outbox
from jobrunner.job import Context, Job

T = TypeVar("T")
LIMIT: Final = 500


def cleanup_jobs(job: Job, ctx: Context) -> None:
    """Recover, purge and compact, in bounded transactions that each begin with check_lease (D24)."""
    while len(_step(ctx, recover_stale_jobs(limit=LIMIT))) >= LIMIT:
        pass
    for call in (purge_jobs(limit=LIMIT), compact_outbox(limit=LIMIT)):
        while _step(ctx, call) >= LIMIT:
            pass
    _step(ctx, wake_outbox())


def _step(ctx: Context, call: Call[T]) -> T:
    """Run one bounded function in a transaction of its own; raises Cancelled when the handler has to stop."""
    with ctx.chunk() as chunk:
        return read(send(chunk.connection, call), call)
