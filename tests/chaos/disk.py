"""The server's disk is full: what cannot be stored is refused, and all of it is done once there is room again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg

from chaos.producers import Producer
from chaos.verdict import judge, judge_keys
from chaos.world import TABLE, Connection, World, recover_of, register
from cluster import OPTIONS as FAST
from jobrunner import devserver, schema
from jobrunner.devserver import Server
from jobs import value
from runnerkit import TERM, eventually

SIZE: Final = "200m"
OPTIONS: Final = {**FAST, "synchronous_commit": "on", "min_wal_size": "32MB", "max_wal_size": "48MB"}


def run(world: World, conn: Connection) -> None:
    """Fill the disk under load, wait until the producer is refused, make room."""
    if os.geteuid() != 0:
        print("SKIPPED: only root can mount a small file system")
        return
    with small_disk() as base:
        if base is None:
            return
        server = devserver.start(base / "server", options=OPTIONS)
        try:
            _fill(world, server, base)
        finally:
            devserver.stop(server)


@contextmanager
def small_disk() -> Iterator[Path | None]:
    """A file system of its own in memory; None (and a word) where it cannot be mounted."""
    base = Path(tempfile.mkdtemp(prefix="mdm-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "mdm-disk", str(base)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        print(f"SKIPPED: {mounted.stderr.strip()}")
        yield None
    else:
        yield base
        subprocess.run(["umount", str(base)], check=True)
    base.rmdir()


def _fill(world: World, server: Server, base: Path) -> None:
    schema.migrate(server.dsn())
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(TABLE)
        register(conn, "disk")
        producer = Producer(lambda: psycopg.connect(server.dsn()), ["disk"], 0.005)
        runner = world.runner(["disk"], "--concurrency", "2", dsn=server.dsn())
        producer.start()
        done = "select count(*) from mdm.aa_job where status = 'done'"
        eventually(lambda: len(producer.committed) > 50 and value(conn, done) > 20, 60)
    ballast = base / "ballast"
    _take_all(ballast)
    eventually(lambda: producer.outages > 3, 60)
    refused, before = producer.outages, len(producer.committed)
    ballast.unlink()
    if devserver.running_pid(server) is None:
        devserver.start(
            server.base
        )  # without room for its log the server stops; it comes back with all it acknowledged
        print("  the server had stopped for want of room, and was started again")
    eventually(lambda: len(producer.committed) > before + 50, 60)
    producer.stop()
    runner.signal(TERM)
    world.expect(runner.end() == 0, f"the runner: {runner.log[-300:]}")
    runner.close()
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        recover_of(conn, [runner.pid])
        rest = world.runner(["disk"], "--drain-all", dsn=server.dsn())
        world.expect(rest.end() == 0, f"the rest: {rest.log[-300:]}")
        rest.close()
        print(f"  disk full: {refused} enqueues refused, {len(producer.committed)} acknowledged")
        judge_keys(world, conn, producer.committed, producer.rolled_back)
        outcomes = judge(world, conn, {"disk": "effect"})
        world.expect(value(conn, "select count(*) from mdm.aa_job where attempts > 50") == 0, "a job was tried in vain")
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)


def _take_all(ballast: Path) -> None:
    """Write until nothing is left."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * (shutil.disk_usage(ballast.parent).free // 2 or 4096))
