"""The scenario pickup: how soon an idle worker starts a job after its commit, and what it costs to be idle."""

from __future__ import annotations

import random
import re
from pathlib import Path
from time import monotonic, sleep, time
from typing import Final

import psycopg
from figures import percentile
from kit import Bench
from machine import process_seconds
from queues import BARE, OURS, Queue, beside, database, peers, trust_seconds, worker
from tables import Connection, wait_until

SETTLE_SECONDS: Final = 4.0  # until it is idle: what is measured is the idle worker
LATE_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 20.0
# one line of the server's log a statement, whichever protocol it came by
STATEMENT: Final = re.compile(r"^jobrunner [^:]*: LOG:  duration: [\d.]+ ms  (?:statement|execute )", re.MULTILINE)
SESSIONS: Final = """
    select pid from pg_stat_activity
    where datname = current_database() and application_name like 'jobrunner%'
"""


def pickup(bench: Bench) -> None:
    """Single enqueues on an idle worker, then some that are committed late; and the idle process."""
    count, late, idle = (30, 10, 4.0) if bench.quick else (200, 100, IDLE_SECONDS)
    theirs = {}
    for peer in peers(bench):
        with database(bench, peer) as dsn, worker(bench, peer, dsn), psycopg.connect(dsn) as conn:
            sleep(SETTLE_SECONDS)
            theirs[peer.name] = waits = _waits(bench, peer, conn, count)
            bench.times("pickup", f"{count} single enqueues, commit to start, {peer.name}", waits, 50, 99)
    with bench.database() as dsn, worker(bench, BARE, dsn), psycopg.connect(dsn) as conn:
        sleep(SETTLE_SECONDS)
        bare = _waits(bench, BARE, conn, count)
        bench.times("pickup", f"{count} single enqueues, commit to start, {BARE.name}", bare, 50, 99)
    with bench.database() as dsn:
        with worker(bench, OURS, dsn), psycopg.connect(dsn) as conn:
            sleep(SETTLE_SECONDS + trust_seconds(bench, OURS))
            ours = _waits(bench, OURS, conn, count)
            what = f"{count} single enqueues, commit to start"
            bench.times("pickup", what, ours, 50, 99, of=bare, limit=BARE.name)
            for percent in (50, 99):
                of = {name: percentile(waits, percent) * 1000 for name, waits in theirs.items()}
                what, value = f"commit to start, p{percent}", percentile(ours, percent) * 1000
                beside(bench, "pickup", what, value, "ms", of, most=False)
            waits = _waits(bench, OURS, conn, late, LATE_SECONDS)
            what = f"{late} committed {LATE_SECONDS * 1000:.0f} ms after the enqueue, commit to start"
            bench.times("pickup", what, waits, 50, 99)
        _idle(bench, dsn, idle)


def _waits(bench: Bench, queue: Queue, conn: Connection, count: int, late_seconds: float = 0.0) -> list[float]:
    """Enqueue one job after the other; the seconds from the commit to the start of each."""
    bench_before = len(bench.starts())
    committed: list[float] = []
    for number in range(count):
        before = bench.started()
        conn.execute(queue.enqueue(f"jsonb_build_object('t', {number})").encode())
        sleep(late_seconds)
        conn.commit()
        committed.append(time())
        wait_until(lambda before=before: bench.started() > before, 10, "the pickup of a job")  # type: ignore[misc]
        sleep(random.uniform(0.02, 0.08))
    starts = sorted(at for _, at in bench.starts())[bench_before:]
    return [max(0.0, started - at) for at, started in zip(committed, starts, strict=True)]


def _idle(bench: Bench, dsn: str, seconds: float) -> None:
    """Count what a process that has nothing to do sends to the server, and the CPU that both use for it."""
    name = dsn.split("@/")[1].split("?")[0]
    log = Path(bench.server.base / "log")
    with psycopg.connect(dsn, autocommit=True) as conn:
        # of sessions that begin from now on; the name of the application begins each line
        conn.execute(f"alter database {name} set log_min_duration_statement = 0".encode())
        with worker(bench, OURS, dsn) as process:
            sleep(SETTLE_SECONDS)
            pids = [pid for (pid,) in conn.execute(SESSIONS)]
            offset, used, served = log.stat().st_size, process_seconds(process.pid), sum(map(process_seconds, pids))
            began = monotonic()
            sleep(seconds)
            took = monotonic() - began
            used = process_seconds(process.pid) - used
            served = sum(map(process_seconds, pids)) - served
            with log.open("rb") as file:
                file.seek(offset)
                said = file.read().decode(errors="replace")
    queries = len(STATEMENT.findall(said))
    bench.report("pickup", f"idle for {seconds:.0f} s: queries over all its sessions", queries / took, "queries/s")
    bench.report("pickup", f"idle for {seconds:.0f} s: the process, of one core", used / took * 100, "%")
    bench.report("pickup", f"idle for {seconds:.0f} s: its sessions in the server", served / took * 100, "%")
