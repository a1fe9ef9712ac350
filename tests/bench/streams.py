"""The scenarios steady and held-snapshot: jobs that come at a rate, from the enqueue to the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic, sleep, time
from typing import Final

import psycopg
from figures import percentile
from kit import Bench
from machine import CORES, busy_seconds
from queues import BARE, OURS, Queue, beside, database, peers, trust_seconds, worker

SETTLE_SECONDS: Final = 3.0
FIRST_SECONDS: Final = 2.0  # of a stream, not counted
LATE_SHARE: Final = 0.01
LATE_SECONDS: Final = 0.5  # a late producer holds its transaction for so long
LATE_CLIENTS: Final = 16
AFTER_SECONDS: Final = 5.0  # what has not started so long after the end has been left behind
NEGATIVE: Final = "jsonb_build_object('t', - extract(epoch from clock_timestamp()))"


@dataclass(slots=True)
class Stream:
    """What was seen. `waits`: seconds since the beginning, seconds from the enqueue to the start."""

    seconds: float
    produced: float = 0.0
    busy: float = 0.0  # part of all cores
    waits: list[tuple[float, float]] = field(default_factory=list)
    late: list[float] = field(default_factory=list)  # seconds from the commit to the start
    left: int = 0

    def of(self, first: float = 0.0, last: float = 1.0) -> list[float]:
        """Return the waits of a part of the time."""
        begin = max(min(FIRST_SECONDS, self.seconds / 10), first * self.seconds)
        end = last * self.seconds if last < 1 else float("inf")
        return [wait for at, wait in self.waits if begin <= at < end]


def steady(bench: Bench) -> None:
    """A steady stream: enqueue to start, and the share of the machine that it takes."""
    rate, seconds = 500, 60 * bench.options.minutes if bench.options.minutes else 8 if bench.quick else 60
    found: dict[str, list[float]] = {}
    for queue in (*peers(bench), BARE, OURS):
        measured = _stream(bench, queue, rate, seconds)
        what = _tell(bench, "steady", queue, measured, rate)
        of = found[BARE.name] if queue is OURS else ()
        found[queue.name] = waits = measured.of()
        _times(bench, "steady", f"{what}: enqueue to start", waits, 50, 95, 99, of=of, limit=BARE.name)
    _beside(bench, "steady", "enqueue to start, p95", found)


def held_snapshot(bench: Bench) -> None:
    """A faster stream while another session holds a snapshot, and one job in a hundred is committed late."""
    rate, seconds = 800, 60 * bench.options.minutes if bench.options.minutes else 12 if bench.quick else 120
    found: dict[str, list[float]] = {}
    for queue in (*peers(bench), OURS):
        measured = _stream(bench, queue, rate, seconds, held=True)
        what = _tell(bench, "held-snapshot", queue, measured, rate)
        first, last = measured.of(last=0.25), measured.of(first=0.75)
        _times(bench, "held-snapshot", f"{what}: first quarter", first, 50, 95)
        found[queue.name] = last
        _times(bench, "held-snapshot", f"{what}: last quarter", last, 50, 95, of=first, limit="the first quarter")
        _times(bench, "held-snapshot", f"{what}: the late, commit to start", measured.late, 50, 99, 100)
    _beside(bench, "held-snapshot", "last quarter, p95", found)


def _tell(bench: Bench, scenario: str, queue: Queue, measured: Stream, rate: int) -> str:
    """Report what is asked of every stream; return its name."""
    what = f"{rate}/s for {measured.seconds:.0f} s" + (f", {queue.name}" if queue is not OURS else "")
    bench.report(scenario, f"{what}: produced", measured.produced, "jobs/s", rate, "the rate asked for")
    bench.report(scenario, f"{what}: of all {CORES} cores", measured.busy * 100, "%")
    bench.report(scenario, f"{what}: left {AFTER_SECONDS:.0f} s after the end", measured.left, "jobs")
    return what


def _times(
    bench: Bench,
    scenario: str,
    measure: str,
    seconds: list[float],
    *percents: float,
    of: Sequence[float] = (),
    limit: str = "",
) -> None:
    """Report the waits; a part of a stream of which no job has started has none to report."""
    if seconds:
        bench.times(scenario, measure, seconds, *percents, of=of, limit=limit)


def _beside(bench: Bench, scenario: str, measure: str, found: Mapping[str, list[float]]) -> None:
    """Put our p95 beside that of the better rival."""
    values = {name: percentile(seconds, 95) * 1000 for name, seconds in found.items() if seconds}
    if OURS.name not in values:
        raise SystemExit(f"bench: no job of ours has started: {scenario}, {measure}")
    beside(bench, scenario, measure, values[OURS.name], "ms", values, most=False)


def _stream(bench: Bench, queue: Queue, rate: int, seconds: float, *, held: bool = False) -> Stream:
    """Produce with pgbench while one process works."""
    found = Stream(seconds)
    with ExitStack() as stack:
        dsn = stack.enter_context(database(bench, queue))
        stack.enter_context(worker(bench, queue, dsn))
        pool = stack.enter_context(ThreadPoolExecutor())
        sleep((SETTLE_SECONDS / 3 if bench.quick else SETTLE_SECONDS) + trust_seconds(bench, queue))
        scripts = [(f"{queue.enqueue()};\n", 4, float(rate))]
        if held:
            _hold(stack.enter_context(psycopg.connect(dsn)))
            late = f"begin;\n{queue.enqueue(NEGATIVE)};\n\\sleep {LATE_SECONDS * 1000:.0f} ms\ncommit;\n"
            scripts = [(scripts[0][0], 4, rate * (1 - LATE_SHARE)), (late, LATE_CLIENTS, rate * LATE_SHARE)]
        began, clock, busy = time(), monotonic(), busy_seconds()
        produced = [
            pool.submit(bench.pgbench, dsn, script, clients=clients, seconds=seconds, rate=each)
            for script, clients, each in scripts
        ]
        turns = [future.result() for future in produced]
        found.produced = sum(each.rate for each in turns)
        found.busy = (busy_seconds() - busy) / (monotonic() - clock) / CORES
        found.left = _left(bench, sum(each.done for each in turns))
        starts = bench.starts()
    found.waits = [(asked - began, at - asked) for asked, at in starts if asked > 0]
    # the commit comes LATE_SECONDS after the enqueue at the earliest: what it took itself counts as waiting
    found.late = [max(0.0, at + asked - LATE_SECONDS) for asked, at in starts if asked < 0]
    return found


def _hold(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Begin a transaction that sees the database as it is now."""
    conn.execute("set transaction isolation level repeatable read")
    conn.execute("select count(*) from pg_class")


def _left(bench: Bench, produced: int) -> int:
    """Let what is left start; how many have not."""
    limit = monotonic() + AFTER_SECONDS
    while bench.started() < produced and monotonic() < limit:
        sleep(0.05)
    sleep(0.2)
    return max(0, produced - bench.started())
