"""The queues that are measured in the same way: ours, and with --peers those of others that are installed here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

from kit import HERE, Bench
from tables import fill

from jobrunner.outage import TRUSTED_SECONDS

NOW: Final = "jsonb_build_object('t', extract(epoch from clock_timestamp()))"
DRIVERS: Final = HERE / "peers"


@dataclass(frozen=True, slots=True)
class Queue:
    """A job queue on PostgreSQL whose jobs `noop` note when they start.

    `single` enqueues one job with {payload}, a jsonb expression. `left` counts the jobs that are not finished; ours
    looks at the running ones alone: all there is once each handler has started. A driver has the commands setup,
    bulk N and worker.
    """

    name: str
    left: str
    single: str
    driver: str = ""
    variable: str = ""  # environment variable that names the interpreter
    probe: tuple[str, ...] = ()  # ends with 0 where the peer is installed
    rival: bool = False  # one of the two beside which our figures are put

    def enqueue(self, payload: str = NOW) -> str:
        """Return the statement that enqueues one job."""
        text = self.single or _run(self, {}, "single")
        return " ".join(text.replace("{payload}", payload).split())


OURS: Final = Queue(
    "jobrunner",
    left="select count(*) from mdm.aa_job where status = 'running'",
    single="select mdm.enqueue_job('noop', {payload})",
)
# the limit of what any worker can reach on our tables
BARE: Final = Queue("a bare loop", left=OURS.left, single=OURS.single)
PEERS: Final = (
    Queue(
        "pg-boss",
        left="select count(*) from pgboss.job where name = 'noop' and state < 'completed'",
        single="",  # its own statement, which the driver prints
        driver="pgboss.cjs",
        variable="BENCH_NODE22",
        probe=("-e", "if (+process.versions.node.split('.')[0] < 22) process.exit(1); require.resolve('pg-boss')"),
        rival=True,
    ),
    Queue(
        "graphile-worker",
        left="select count(*) from graphile_worker._private_jobs",
        single="select graphile_worker.add_job('noop', ({payload})::json)",
        driver="graphile.cjs",
        variable="BENCH_NODE",
        probe=("-e", "require.resolve('graphile-worker'); require.resolve('pg')"),
        rival=True,
    ),
    Queue(
        "pgqueuer",
        left="select count(*) from pgqueuer where status in ('queued', 'picked')",
        single="""
            with i as (
              insert into pgqueuer (priority, entrypoint, payload, execute_after, status, headers)
              values (0, 'noop', convert_to(({payload})::text, 'UTF8'), now(), 'queued', '{}')
              returning id, entrypoint, priority)
            insert into pgqueuer_log (job_id, status, entrypoint, priority)
            select id, 'queued', entrypoint, priority from i""",
        driver="peer_pgqueuer.py",
        variable="BENCH_PYTHON",
        probe=("-c", "import pgqueuer, asyncpg, uvloop"),
    ),
    Queue(
        "procrastinate",
        left="select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        single="""
            select procrastinate_defer_jobs_v1(array[row('default', 'noop', 0, null, null, {payload}, null)]
              ::procrastinate_job_to_defer_v1[])""",
        driver="peer_procrastinate.py",
        variable="BENCH_PYTHON",
        probe=("-c", "import procrastinate, psycopg_pool, uvloop"),
    ),
)


def interpreter(peer: Queue) -> str:
    """Return the program that runs a peer's driver."""
    fallback = sys.executable if peer.variable == "BENCH_PYTHON" else os.environ.get("BENCH_NODE", "node")
    return os.environ.get(peer.variable, fallback)


@cache
def installed(peer: Queue) -> bool:
    """Whether a peer can be run here."""
    try:
        done = subprocess.run([interpreter(peer), *peer.probe], capture_output=True, check=False, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def peers(bench: Bench) -> list[Queue]:
    """Give the peers to be measured: those that are installed, where they were asked for."""
    return [peer for peer in PEERS if bench.options.peers and installed(peer)]


@contextmanager
def database(bench: Bench, queue: Queue) -> Iterator[str]:
    """A fresh database with the queue's schema."""
    if not queue.driver:
        with bench.database() as dsn:
            yield dsn
        return
    with bench.empty_database() as dsn:
        _run(queue, {"BENCH_DSN": dsn}, "setup")
        yield dsn


def load(queue: Queue, dsn: str, jobs: int) -> None:
    """Enqueue so many no-op jobs, as quickly as the queue can."""
    if queue.driver:
        _run(queue, {"BENCH_DSN": dsn}, "bulk", str(jobs))
    else:
        fill(dsn, "noop", jobs)


@contextmanager
def worker(bench: Bench, queue: Queue, dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    """One process that works on the jobs, until the end."""
    if queue is BARE:
        with bench.process([sys.executable, str(DRIVERS / "bareloop.py"), dsn], {}) as process:
            yield process
    elif queue.driver:
        command = [interpreter(queue), str(DRIVERS / queue.driver), "worker"]
        with bench.process(command, {"BENCH_DSN": dsn}) as process:
            yield process
    else:
        with bench.runner(dsn) as process:
            yield process


def trust_seconds(bench: Bench, queue: Queue) -> float:
    """How long a worker runs until its claims are made as in production: ours wait for the disk at first."""
    return TRUSTED_SECONDS if queue is OURS and not bench.quick else 0.0


def beside(
    bench: Bench, scenario: str, measure: str, ours: float, unit: str, theirs: Mapping[str, float], *, most: bool
) -> None:
    """Report a figure of ours beside the better of the two rivals, if one of them ran; `most`: the more the better."""
    of_rivals = {peer.name: theirs[peer.name] for peer in PEERS if peer.rival and peer.name in theirs}
    if of_rivals:
        name = (max if most else min)(of_rivals, key=lambda each: of_rivals[each])
        bench.report(scenario, f"{measure}: ours", ours, unit, of_rivals[name], f"{name}, the better of the rivals")


def _run(peer: Queue, environ: Mapping[str, str], *arguments: str) -> str:
    """Run a command of a peer's driver and return what it prints; raises with its last words."""
    command = [interpreter(peer), str(DRIVERS / peer.driver), *arguments]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench: {peer.name}, {arguments[0]}: {done.stderr.strip()[-1000:]}")
    return done.stdout
