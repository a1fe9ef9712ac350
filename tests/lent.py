"""A context for handlers without a runner (job.Context): the transactions of design 4 on a connection of the test."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from jobrunner.db.call import LeaseLost, lease_lost
from jobrunner.errors import LEASE_LOST, Cancelled
from jobrunner.job import Handler, Job
from jobs import Connection, Row, call


class LentChunk:
    """One transaction (job.Chunk)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.finishes = False

    def finish(self) -> None:
        self.finishes = True


class LentContext:
    """Lends one connection; `before_commit` is called with the number of each chunk, to crash there."""

    def __init__(self, conn: Connection, row: Row, before_commit: Callable[[int], None] = lambda number: None) -> None:
        self._conn = conn
        self._row = row
        self._before_commit = before_commit
        self._in_transaction = False
        self.chunks = 0
        self.finished = False
        self.cancelled = False
        self.logger = logging.LoggerAdapter(logging.getLogger("tests"), {})

    def connection(self) -> Connection:
        if not self._in_transaction:
            self._conn.execute("begin")
            self._in_transaction = True
        return self._conn

    @contextmanager
    def chunk(self) -> Iterator[LentChunk]:
        self.raise_if_cancelled()
        assert not self.finished, "a chunk after the last"
        assert not self._in_transaction, "a chunk in another transaction"
        chunk = LentChunk(self._conn)
        self.chunks += 1
        with mapped(), self._conn.transaction():
            call(self._conn, "check_lease", job_id=self._row["id"], lease_no=self._row["lease_no"])
            yield chunk
            if chunk.finishes:
                call(self._conn, "finish_job", job_id=self._row["id"], lease_no=self._row["lease_no"])
            self._before_commit(self.chunks)
        self.finished = chunk.finishes

    def raise_if_cancelled(self) -> None:
        if self.cancelled:
            raise Cancelled

    def end(self) -> None:
        """What the slot does when the handler returns."""
        if not self.finished:
            call(self._conn, "finish_job", job_id=self._row["id"], lease_no=self._row["lease_no"])
        if self._in_transaction:
            self._conn.execute("commit")


@contextmanager
def mapped() -> Iterator[None]:
    """MJ001 is LeaseLost, as in the runner."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == LEASE_LOST:
            raise lease_lost(error) from None
        raise


def as_job(row: Row) -> Job:
    """The job that a handler gets of a claimed row."""
    return Job(**{name: row[name] for name in Job._fields})


def run(handler: Handler, conn: Connection, row: Row, **options: Any) -> LentContext:
    """Run a handler over a claimed row, and finish the job when it returns; its errors come out."""
    context = LentContext(conn, row, **options)
    handler(as_job(row), context)
    context.end()
    return context


__all__ = ["LeaseLost", "LentContext", "as_job", "run"]
