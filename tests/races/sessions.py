"""Two sessions at once, interleaved on purpose: start a call in the background, see it wait, let it go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any, TypeVar

import psycopg

Connection = psycopg.Connection[Any]
T = TypeVar("T")

DEADLINE_SECONDS = 120.0
# No wait of these tests is longer; whatever hangs is an error of its session.
OPTIONS = "-c statement_timeout=100s"
# For calls that must not wait for another session's locks at all.
IMPATIENT = f"{OPTIONS} -c lock_timeout=1s"


def background(function: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
    """Run a call in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:  # handed to whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def result(future: Future[T]) -> T:
    """Return what a call in the background gave, or raise what it raised."""
    return future.result(DEADLINE_SECONDS)


def wait_until_blocked(observer: Connection, waiting: Connection, future: Future[Any]) -> None:
    """Wait until another session stands in the way of `waiting`; fail when its call goes through instead."""
    until = monotonic() + DEADLINE_SECONDS
    pid = waiting.info.backend_pid
    while not is_blocked(observer, pid):
        done, _ = wait([future], timeout=0.002)
        assert not done, f"the call did not wait: {future.exception() or future.result()!r}"
        assert monotonic() < until, "the call neither waited for a lock nor returned"


def is_blocked(observer: Connection, pid: int) -> bool:
    """Say whether a session waits for a lock that another session holds."""
    row = observer.execute("select cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone()
    return row is not None and bool(row[0])


def together(calls: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """Start calls at the same moment and wait until all of them have ended."""
    barrier = threading.Barrier(len(calls))

    def start(function: Callable[[], T]) -> T:
        barrier.wait(DEADLINE_SECONDS)
        return function()

    futures = [background(start, function) for function in calls]
    _, left = wait(futures, timeout=DEADLINE_SECONDS)
    assert not left, f"{len(left)} of {len(calls)} calls hang"
    return futures


def results(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Start calls at the same moment and return what they gave; raise what one of them raised."""
    return [future.result() for future in together(calls)]


def sqlstate(future: Future[Any]) -> str | None:
    """Return the SQLSTATE that a call in the background ended with, None when it went through."""
    error = future.exception(DEADLINE_SECONDS)
    if error is None:
        return None
    assert isinstance(error, psycopg.Error), repr(error)
    return error.sqlstate
