"""The job kind reindex (S2.3): rebuilds the search vectors of a tenant and type, chunk by chunk."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Final

import psycopg

from jobrunner.db.call import read, send
from jobrunner.db.reindex import ReindexChunk, reindex_chunk
from jobrunner.errors import BAD_ARGUMENT, PermanentError, Snooze
from jobrunner.job import Context, Job

# A chunk holds the locks of its rows until its commit: that is how long a writer may have to wait for one of them.
CHUNK_SECONDS: Final = 0.15
FIRST_ROWS: Final = 500
MAX_ROWS: Final = 5000
# Others' transactions are usually over in a moment; for one that is not, the slot goes to another job.
POLL_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 2.0
SNOOZE_SECONDS: Final = 15.0


def reindex(job: Job, ctx: Context) -> None:
    """Rebuild what the job asks for; a crash or a retry goes on behind the last chunk that was committed.

    Every chunk is a transaction that begins with check_lease, the last one carries finish_job (D24). Raises
    PermanentError for a payload that cannot be right (MJ005), Snooze when somebody holds a row for long.
    """
    rows = FIRST_ROWS
    stuck_since: float | None = None
    while True:
        ctx.raise_if_cancelled()
        began = monotonic()
        done = _chunk(job, ctx, rows)
        if done.is_last:
            ctx.logger.info("reindex_done")
            return
        ended = monotonic()
        if done.blocked_by is None:
            rows, stuck_since = next_rows(rows, ended - began), None
        else:
            stuck_since = ended if stuck_since is None or done.rows_rebuilt else stuck_since
            wait(ended - stuck_since, done.blocked_by)


def next_rows(rows: int, seconds: float) -> int:
    """Return how many rows the next chunk should take, after one of `rows` rows took `seconds`."""
    fitting = int(rows * CHUNK_SECONDS / max(seconds, 0.001))
    return max(1, min(fitting, 2 * rows, MAX_ROWS))


def wait(stuck_seconds: float, blocked_by: str) -> None:
    """Wait a moment for whoever is in the way; raise Snooze when he has been for too long."""
    if stuck_seconds > PATIENCE_SECONDS:
        raise Snooze(SNOOZE_SECONDS, f"reindex waits for {blocked_by}")
    sleep(POLL_SECONDS)


def _chunk(job: Job, ctx: Context, rows: int) -> ReindexChunk:
    """Run one chunk in a transaction of its own, and finish the job in it when it is the last."""
    call = reindex_chunk(job_id=job.id, lease_no=job.lease_no, limit=rows)
    try:
        with ctx.chunk() as chunk:
            done = read(send(chunk.connection, call), call)
            if done.is_last:
                chunk.finish()
            return done
    except psycopg.Error as error:
        if error.sqlstate == BAD_ARGUMENT:
            raise PermanentError(str(error).splitlines()[0]) from error
        raise
