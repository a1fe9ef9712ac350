"""What is done to a database for a measurement: fill it, let it come to rest, hold the runners at the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

WAITING: Final = "select count(*) from pg_locks where relation = 'mdm.aa_job'::regclass and not granted"
Connection = psycopg.Connection[Any]


def fill(dsn: str, kind: str, jobs: int) -> float:
    """Enqueue so many jobs in calls of 1,000; return jobs a second."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        batch = conn.execute(
            "select jsonb_agg(jsonb_build_object('job_kind', %s::text)) from generate_series(1, 1000)", (kind,)
        )
        [(text,)] = batch.fetchall()
        payload = Jsonb(text)
        began = monotonic()
        for _ in range(jobs // 1000):
            conn.execute("select count(*) from mdm.enqueue_jobs(%s)", (payload,))
        seconds = monotonic() - began
        settle(conn)
    return jobs / seconds


def settle(conn: Connection) -> None:
    """Give the planner statistics, and let nothing be left to write when the measurement begins."""
    conn.execute("vacuum analyze")
    conn.execute("checkpoint")


@contextmanager
def together(dsn: str, processes: int) -> Iterator[None]:
    """Let runners that are started here wait at their first look at the jobs until all of them are there."""
    with psycopg.connect(dsn) as gate:
        gate.execute("lock table mdm.aa_job in access exclusive mode")
        yield
        wait_until(lambda: number_of(gate, WAITING) >= processes, 60, "the start of all processes")


def number_of(conn: Connection, query: str) -> int:
    """Return the one number that a query gives."""
    [(found,)] = conn.execute(query.encode()).fetchall()
    return int(found)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition with a deadline."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise SystemExit(f"bench: {what} did not happen within {seconds:.0f} s")
        sleep(0.002)
