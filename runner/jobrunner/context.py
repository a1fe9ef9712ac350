"""The context of one job: lends the slot's connection to the handler, one transaction at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from jobrunner.db.worker import check_lease, finish_job
from jobrunner.errors import Cancelled
from jobrunner.logs import job_logger
from jobrunner.steady import Steady
from jobrunner.tray import Hold


class SlotChunk:
    """One transaction of a handler that commits more than once (job.Chunk)."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.finishes = False

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection, in a transaction that began with check_lease."""
        return self._connection

    def finish(self) -> None:
        """Let the commit carry finish_job."""
        self.finishes = True


class SlotContext:
    """What the runner lends a handler for the time of one job (job.Context)."""

    def __init__(self, hold: Hold, session: Steady, ttl_seconds: float) -> None:
        self._hold = hold
        self._session = session
        self._ttl_seconds = ttl_seconds
        self.over = False  # the handler has returned: a thread of its own may still call
        self.chunk_open = False
        self.used = False  # the handler got the connection
        self.open = False  # connection() began the transaction that carries finish_job
        self.finish_sent = False  # a chunk sent finish_job; whether it was committed may not be known

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection of the job's own transaction, opened at the first call (S5.1)."""
        if not self.open or self.chunk_open or self.finish_sent or self.over:
            self._check_free("connection()")
            self._connection = self._session.begin(self._hold, self._ttl_seconds)
            self.open = True
        return self._connection

    @contextmanager
    def chunk(self) -> Iterator[SlotChunk]:
        """Run a transaction that begins with check_lease (D24)."""
        self._check_free("chunk()")
        row = self._hold.row
        lease = check_lease(job_id=row.id, lease_no=row.lease_no)
        chunk = SlotChunk(self._session.begin(self._hold, self._ttl_seconds, lease))
        self.chunk_open = True
        try:
            yield chunk
        except BaseException:
            if not self.over:  # or the transaction is that of another job
                self._session.raw.rollback()
            raise
        finally:
            self.chunk_open = self.over
        self._commit(chunk)

    @property
    def cancelled(self) -> bool:
        """True when the handler has to stop."""
        return self._hold.cancelled

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled when the handler has to stop."""
        if self._hold.cancelled:
            raise Cancelled("the lease is lost, the time is up, or the runner ends")

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger of this job."""
        return job_logger(self._hold.row)

    def _check_free(self, what: str) -> None:
        """Refuse a second transaction beside an open one, or after the last."""
        if self.over:
            raise RuntimeError(f"{what} after the handler has returned: it is for the time of one job")
        if self.open or self.chunk_open:
            raise RuntimeError(f"{what} inside another transaction of the job: end that one first")
        if self.finish_sent:
            raise RuntimeError(f"{what} after the chunk that finished the job")
        self.raise_if_cancelled()
        self.used = True

    def _commit(self, chunk: SlotChunk) -> None:
        """Commit a chunk; the last one together with finish_job, so that both hold or neither (D24)."""
        if not chunk.finishes:
            self._session.raw.commit()
            return
        row = self._hold.row
        self.finish_sent = True
        self._session.raw.commit(finish_job(job_id=row.id, lease_no=row.lease_no))
        self._hold.finished = True
