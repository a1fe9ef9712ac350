"""The scenario scale: drains with more processes, and beside more and more done rows that are kept."""

from __future__ import annotations

from typing import Final

import psycopg
from drains import Drained, drain_loaded, load_and_drain
from kit import Bench
from queues import OURS
from tables import fill, settle

PROCESSES: Final = (1, 2, 4, 8)
MANY: Final = 4  # times the jobs for several processes: the first calls of 32 sessions, 0.4 s, are no throughput
DONE: Final = """
    insert into mdm.aa_job (job_kind, priority, max_attempts, status, attempts, completed_at)
    select 'noop', 100, 10, 'done', 1, clock_timestamp() - n %% 36000 * interval '1 second'
    from generate_series(1, %s) n
"""


def scale(bench: Bench) -> None:
    """Drain with one process and more, then with one beside done rows; the memory of a runner in all of them."""
    jobs = 4_000 if bench.quick else 50_000
    many = MANY * jobs
    first = 0.0
    for processes in PROCESSES[:2] if bench.quick else PROCESSES:
        with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
            fill(dsn, "noop", many)
            measured = drain_loaded(bench, OURS, dsn, conn, many, processes)
        first = first or measured.rate
        _tell(bench, f"{many:,} jobs, processes: {processes}", measured, first, "one process")
    with bench.database() as dsn:
        empty = load_and_drain(bench, OURS, dsn, jobs).rate
    sizes = (10_000,) if bench.quick else (10_000, 100_000, 1_000_000)
    for rows in (*sizes, *((10_000_000,) if bench.options.large else ())):
        with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(DONE, (rows,))
            settle(conn)
            measured = load_and_drain(bench, OURS, dsn, jobs)
        _tell(bench, f"{jobs:,} jobs beside {rows:,} done rows", measured, empty, "an empty table")


def _tell(bench: Bench, what: str, measured: Drained, of: float, limit: str) -> None:
    bench.report("scale", what, measured.rate, "jobs/s", of, limit)
    bench.report("scale", f"{what}: memory of a runner", measured.resident_mb, "MB")
