"""The scenario reindex (S2.3): many rows without one long transaction, while a reader and a writer work."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from threading import Event, Thread
from time import monotonic
from typing import Any, Final

import psycopg
from imports import TYPE, register
from kit import Bench
from psycopg.types.json import Jsonb
from tables import settle

from jobrunner.demo.data import entities

PAUSE_SECONDS: Final = 0.02
READ: Final = "select attributes from mdm.ddm_entity where entity_key = %s and entity_type_id = %s and tenant_id = %s"
# the trigger of the stand-in computes the row's vector
WRITE: Final = """
    update mdm.ddm_entity set attributes = attributes || '{"population": 1}'
    where entity_key = %s and entity_type_id = %s and tenant_id = %s
"""
LONGEST: Final = """
    select coalesce(extract(epoch from max(clock_timestamp() - a.xact_start)), 0)::float8
    from pg_stat_activity a
    where a.backend_type = 'client backend' and a.application_name <> 'bench' and a.datname = current_database()
"""
Act = Callable[[psycopg.Connection[Any]], float]


def reindex(bench: Bench) -> None:
    """Rebuild every vector with one jobrunner process."""
    rows = 20_000 if bench.quick else 1_000_000
    with bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        read, write = _fill(conn, rows)
        with _repeated(dsn, read) as reads, _repeated(dsn, write) as writes:
            Event().wait(2 if bench.quick else 10)
        conn.execute("select mdm.request_reindex(null)")
        with (
            _repeated(dsn, read) as reads_meanwhile,
            _repeated(dsn, write) as writes_meanwhile,
            _repeated(dsn, _longest) as longest,
            bench.runner(dsn, "--drain", kinds="reindex") as process,
        ):
            process.wait(3600)
        [(rebuilt, left, seconds)] = conn.execute(
            """select p.rows_rebuilt, (select count(*) from mdm.ddm_entity e where e.search_vector is null),
                 extract(epoch from j.completed_at - j.claimed_at)::float8
               from mdm.aa_job j
               join mdm.aa_reindex_progress p on p.job_id = j.id
               where j.status = 'done'"""
        ).fetchall()
    if rebuilt != rows or left:
        raise SystemExit(f"bench: {rebuilt} of {rows} rows were rebuilt, {left} have no vector")
    bench.report("reindex", f"{rows:,} rows, every vector written", rows / seconds, "rows/s")
    bench.report("reindex", "longest transaction of the runner seen", max(longest) * 1000, "ms")
    for who, before, meanwhile in (("reader", reads, reads_meanwhile), ("writer", writes, writes_meanwhile)):
        bench.times("reindex", f"{who} before", before, 50, 95)
        bench.times("reindex", f"{who} meanwhile", meanwhile, 50, 95, 100, of=before, limit="before")


def _longest(conn: psycopg.Connection[Any]) -> float:
    """Age of the oldest transaction that is not the bench's, in seconds."""
    [(age,)] = conn.execute(LONGEST).fetchall()
    return float(age)


def _timed(query: bytes, keys: int, *scope: Any) -> Act:
    """Make an act that runs a query for a random key and returns its seconds."""

    def act(conn: psycopg.Connection[Any]) -> float:
        began = monotonic()
        conn.execute(query, (str(random.randint(1, keys)), *scope))
        return monotonic() - began

    return act


@contextmanager
def _repeated(dsn: str, act: Act) -> Iterator[list[float]]:
    """Act again and again in a thread of its own; gives what the acts return."""
    found: list[float] = []
    over = Event()

    def run() -> None:
        with psycopg.connect(dsn, autocommit=True, application_name="bench") as conn:
            while not over.wait(PAUSE_SECONDS):
                found.append(act(conn))

    thread = Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _fill(conn: psycopg.Connection[Any], count: int) -> tuple[Act, Act]:
    """Load so many rows without vectors, the cities again and again; gives what a reader and a writer do."""
    tenant, type_id = register(conn)
    cities = [one for one in entities() if one.type_key == TYPE]
    conn.execute("alter table mdm.ddm_entity disable trigger user")
    with (
        conn.cursor() as cursor,
        cursor.copy("copy mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes) from stdin") as copy,
    ):
        for number, city in islice(enumerate(cycle(cities), 1), count):
            copy.write_row((tenant, type_id, str(number), Jsonb(city.attributes)))
    conn.execute("alter table mdm.ddm_entity enable trigger user")
    settle(conn)
    return _timed(READ.encode(), count, type_id, tenant), _timed(WRITE.encode(), count, type_id, tenant)
