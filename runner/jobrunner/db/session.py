"""A connection with a life: opened when needed, opened again after a loss, severed from another thread.

A session belongs to one thread. Only `sever` and `busy_seconds` may be called by others.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors, generators, waiting
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

from jobrunner.db.call import Call, lease_lost, nothing, read, send
from jobrunner.db.connect import Target, connect
from jobrunner.errors import LEASE_LOST

T = TypeVar("T")

BEGIN: Final = Call("begin isolation level read committed", nothing)
COMMIT: Final = Call("commit", nothing)
ROLLBACK: Final = Call("rollback", nothing)
LOCK_TIMEOUT: Final = "select set_config('lock_timeout', %(ms)s, true)"
# What a handler may leave behind in a session (B55): all of DISCARD ALL but plans and sequences.
CLEAN: Final = (
    "close all; reset session authorization; reset role; reset all; unlisten *;"
    " select pg_advisory_unlock_all(); discard temp"
)


class CommitLost(psycopg.OperationalError):
    """The transaction could not be committed: it was aborted, or closed, by what ran in it."""


class Cut:
    """What is left of a severed connection: the way to stop what its backend runs.

    Made before the connection is cut: afterwards whoever used it notices and closes it, and psycopg cancels nothing on
    a closed connection. The statement of a zombie would go on and hold its locks.
    """

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._request = conn.pgconn.cancel_conn() if psycopg.capabilities.has_cancel_safe() else None
        self._legacy = conn.pgconn.get_cancel() if self._request is None else None

    def cancel(self, timeout_seconds: float = 1.0) -> None:
        """Ask the server to stop the statement; a server that cannot be reached is let be."""
        with contextlib.suppress(psycopg.Error):
            if self._legacy is not None:
                self._legacy.cancel()
            elif self._request is not None:
                self._request.start()
                waiting.wait_conn(generators.cancel(self._request), interval=0.1, timeout=timeout_seconds)


class Session:
    """One connection of one thread."""

    def __init__(self, target: Target, name: str, *, lock_seconds: float = 0) -> None:
        self.name = name
        self._target = target
        self._lock_seconds = lock_seconds  # a call waits no longer for a lock; 0 = as long as it takes
        self._lock = threading.Lock()  # between the owner's open and close and another thread's sever
        self._conn: psycopg.Connection[Any] | None = None
        self._severed = False
        self._busy_since: float | None = None

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection, opened if there is none that can be used. Raises psycopg.OperationalError."""
        conn = self._conn
        if conn is not None and not self._severed and not conn.closed and conn.autocommit:
            return conn
        self.close()
        conn = connect(self._target, self.name, lock_seconds=self._lock_seconds)
        with self._lock:
            self._conn, self._severed = conn, False
        return conn

    @property
    def current(self) -> psycopg.Connection[Any] | None:
        """The connection as it is, if there is one."""
        return self._conn

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def sever(self) -> Cut | None:
        """Cut the connection under whoever uses it; safe from any thread. Gives the means to cancel what it ran."""
        with self._lock:
            conn = self._conn
            if conn is None or conn.closed or self._severed:
                return None
            self._severed = True
            cut = Cut(conn)
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as peer:
                peer.shutdown(socket.SHUT_RDWR)
            return cut

    @property
    def busy_seconds(self) -> float:
        """How long the call of the runner's own has been under way; 0 when there is none."""
        since = self._busy_since
        return 0.0 if since is None else monotonic() - since

    @property
    def status(self) -> TransactionStatus:
        """The state of the connection's transaction; UNKNOWN when it is lost."""
        conn = self._conn
        if conn is None or self._severed or conn.closed:
            return TransactionStatus.UNKNOWN
        if conn.pgconn.pipeline_status != PipelineStatus.OFF:
            return TransactionStatus.ACTIVE
        return conn.info.transaction_status

    def run(self, call: Call[T]) -> T:
        """Run a call in a transaction of its own, in one round trip.

        Raises LeaseLost for SQLSTATE MJ001 and psycopg.Error for the rest; the transaction is then rolled back.
        """
        with self._own_call() as conn:
            if not self._target.pooler:
                return read(send(conn, call), call)
            return _in_transaction(conn, call, self._lock_seconds)

    def run_alone(self, call: Call[T]) -> T:
        """Run a call that commits by itself and so may stand in no transaction block (a procedure)."""
        with self._own_call() as conn:
            return read(send(conn, call), call)

    def rehearse(self, call: Call[T]) -> T:
        """Run a call and take back what it did; raises what `run` does."""
        with self._own_call() as conn:
            send(conn, BEGIN)
            found = read(send(conn, call), call)
            send(conn, ROLLBACK)
            return found

    def begin(self, idle_seconds: float, *calls: Call[Any]) -> psycopg.Connection[Any]:
        """Open a transaction that the server ends when it is idle for so long (D19), and run the calls in it."""
        idle_ms = max(1, min(int(idle_seconds * 1000), 2_147_483_647))  # 0 would mean for ever
        with self._own_call() as conn:
            _script(conn, BEGIN.sql, f"set local idle_in_transaction_session_timeout = {idle_ms}", *calls)
            return conn

    def commit(self, *calls: Call[Any]) -> None:
        """Run the calls and commit, in one round trip; what a handler left in the session is taken away first.

        Before the calls, since a SET ROLE must not decide whether the job may finish. Raises CommitLost when there
        is no sound transaction to commit, LeaseLost and psycopg.Error as `run` does.
        """
        if self.status is not TransactionStatus.INTRANS:
            raise CommitLost(f"the transaction cannot be committed: it is {self.status.name}")
        with self._own_call() as conn:
            _script(conn, *([CLEAN] if calls else []), *calls, COMMIT.sql)

    def rollback(self) -> None:
        """Leave a clean session without a transaction behind, whatever was done to it; never raises."""
        status = self.status
        if status in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN):
            self.close()
            return
        try:
            with self._own_call() as conn:
                _script(conn, *([] if status is TransactionStatus.IDLE else ["rollback"]), CLEAN)
        except psycopg.Error:
            self.close()

    @contextlib.contextmanager
    def _own_call(self) -> Iterator[psycopg.Connection[Any]]:
        """Note that a call is under way, map its errors, and leave no transaction behind an error."""
        self._busy_since = monotonic()
        try:
            yield self.connection()
        except psycopg.Error as error:
            self._after_error()
            if error.sqlstate == LEASE_LOST:
                raise lease_lost(error) from None
            raise
        finally:
            self._busy_since = None

    def _after_error(self) -> None:
        """Roll back what an error left open; a connection that cannot even do that is closed."""
        conn = self._conn
        if conn is None or self.status is TransactionStatus.IDLE:
            return
        try:
            conn.execute("rollback")
        except psycopg.Error:
            self.close()


def _in_transaction(conn: psycopg.Connection[Any], call: Call[T], lock_seconds: float) -> T:
    """Run the call in a transaction that names its settings by itself, in one round trip."""
    with conn.pipeline():
        limit = [Call(LOCK_TIMEOUT, nothing, {"ms": f"{lock_seconds * 1000:.0f}"})] if lock_seconds else []
        *_, cursor, end = [send(conn, each) for each in (BEGIN, *limit, call, COMMIT)]
    if end.statusmessage != "COMMIT":
        raise CommitLost("the transaction was rolled back instead of committed")
    return read(cursor, call)


def _script(conn: psycopg.Connection[Any], *parts: str | Call[Any]) -> None:
    """Send statements as one message, and read no rows. Parameters are numbers: nothing has to be quoted.

    By libpq itself, whose call gives the GIL back while it waits: a cursor costs a job with a transaction 0.2 ms more.
    """
    texts = [part if isinstance(part, str) else part.sql % _numbers(part.params) for part in parts]
    with conn.lock:  # a thread that the handler left behind may be using it
        result = conn.pgconn.exec_("; ".join(texts).encode())
    if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result)
    if parts[-1] == COMMIT.sql and result.command_status != b"COMMIT":
        raise CommitLost("the transaction was rolled back instead of committed")


def _numbers(params: Mapping[str, Any]) -> Mapping[str, int]:
    """Make sure that parameters can stand in a text as they are."""
    if not all(type(value) is int for value in params.values()):
        raise TypeError(f"only numbers can be written into a script: {params}")
    return params
