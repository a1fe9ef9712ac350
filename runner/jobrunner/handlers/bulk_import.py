"""The job kind bulk_import (S2.2): brings the rows of an upload into ddm_entity, chunk by chunk."""

from __future__ import annotations

from time import monotonic
from typing import Final

import psycopg

from jobrunner.db.call import read, send
from jobrunner.db.imports import ImportChunk, fail_import, import_chunk
from jobrunner.errors import BAD_ARGUMENT, PermanentError
from jobrunner.job import Context, Job

# A chunk holds the locks of its entities until its commit: that is how long a writer may have to wait for one.
CHUNK_SECONDS: Final = 0.5
FIRST_ROWS: Final = 500
MAX_ROWS: Final = 5000
# Classes of SQLSTATE that are the fault of a row: cardinality, data, integrity constraint.
ROWS_FAULT: Final = ("21", "22", "23")


class BadRow(Exception):
    """A row of the chunk cannot be stored."""


def bulk_import(job: Job, ctx: Context) -> None:
    """Import what the payload names; a crash or a retry goes on behind the last chunk that was committed.

    Every chunk is a transaction that begins with check_lease, the last one carries finish_job (D24). Bad rows are
    rejected one by one and fail nothing. Raises PermanentError for a payload that cannot be right (MJ005).
    """
    try:
        _import(job, ctx)
    except psycopg.Error as error:
        if error.sqlstate == BAD_ARGUMENT:
            raise PermanentError(_first_line(error)) from error
        if job.attempts >= job.max_attempts:
            _give_up(job, ctx, error)
        raise


def _import(job: Job, ctx: Context) -> None:
    """Run chunk after chunk, smaller ones around a row that cannot be stored."""
    rows = FIRST_ROWS
    while True:
        ctx.raise_if_cancelled()
        began = monotonic()
        try:
            done = _chunk(job, ctx, rows)
        except BadRow as error:
            if rows > 1:
                rows = max(1, rows // 8)
                continue
            done = _chunk(job, ctx, 1, reject=str(error))
        if done.is_last:
            ctx.logger.info("import_done")
            return
        rows = next_rows(rows, monotonic() - began)


def next_rows(rows: int, seconds: float) -> int:
    """Return how many rows the next chunk should take, after one of `rows` rows took `seconds`."""
    fitting = int(rows * CHUNK_SECONDS / max(seconds, 0.001))
    return max(1, min(fitting, 2 * rows, MAX_ROWS))


def _chunk(job: Job, ctx: Context, rows: int, reject: str | None = None) -> ImportChunk:
    """Run one chunk in a transaction of its own, and finish the job in it when it is the last."""
    call = import_chunk(job_id=job.id, lease_no=job.lease_no, limit=rows, reject=reject)
    try:
        with ctx.chunk() as chunk:
            done = read(send(chunk.connection, call), call)
            if done.is_last:
                chunk.finish()
            return done
    except psycopg.Error as error:
        if error.sqlstate is not None and error.sqlstate[:2] in ROWS_FAULT:
            raise BadRow(_first_line(error)) from error
        raise


def _give_up(job: Job, ctx: Context, error: psycopg.Error) -> None:
    """Say so at the upload: this was the last attempt."""
    with ctx.chunk() as chunk:
        send(chunk.connection, fail_import(job_id=job.id, lease_no=job.lease_no, error=_first_line(error)))


def _first_line(error: psycopg.Error) -> str:
    """What the database says, without its context."""
    return error.diag.message_primary or str(error).partition("\n")[0]
