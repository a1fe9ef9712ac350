"""What every scenario needs: a durable server of its own, fresh databases, pgbench, a real jobrunner, percentiles."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from jobrunner import devserver, schema
from jobrunner.devserver import Server

RECORD: Final = struct.Struct("<dd")  # what benchhandlers writes
HERE: Final = Path(__file__).resolve().parent
RUNNER: Final = HERE.parents[1] / "runner"
Connection = psycopg.Connection[Any]
_numbers = count(1)


@dataclass(slots=True)
class Bench:
    """One run of the scenarios: where, and how long."""

    server: Server
    quick: bool
    log: Path
    results: list[tuple[str, str, str]] = field(default_factory=list)

    def report(self, scenario: str, what: str, value: str) -> None:
        """Print a result at once and keep it."""
        self.results.append((scenario, what, value))
        print(f"{scenario:<10} {what:<58} {value}", flush=True)

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh migrated database with the kinds noop and write; the server is quiet when it starts."""
        name = f"bench_{next(_numbers)}"
        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as admin:
            admin.execute(f"create database {name}".encode())
        dsn = self.server.dsn(name)
        schema.migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create table bench_effect (job_id bigint)")
            conn.execute("select mdm.set_job_kind('noop'), mdm.set_job_kind('write')")
            conn.execute("vacuum analyze")
            conn.execute("checkpoint")
        for file in self.log.iterdir():
            file.unlink()
        try:
            yield dsn
        finally:
            with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as admin:
                admin.execute(f"drop database {name} with (force)".encode())

    @contextmanager
    def runner(
        self, dsn: str, *arguments: str, kinds: str = "noop", environ: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A real jobrunner process; ended at the end."""
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("jobrunner")),
                "--kinds",
                kinds,
                "--handlers",
                "benchhandlers",
                *arguments,
            ],
            env={
                **os.environ,
                "JOBRUNNER_DSN": dsn,
                "BENCH_LOG": str(self.log),
                "PYTHONPATH": f"{RUNNER}:{HERE}",
                **(environ or {}),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(60)

    def pgbench(self, dsn: str, script: str, *, clients: int, seconds: float, rate: int | None = None) -> float:
        """Run a script with pgbench and return transactions a second."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            command = [str(self.server.bin / "pgbench"), "-n", "-j", "1", "-f", file.name]
            command += ["-c", str(clients), "-T", str(int(seconds)), "-M", "simple" if "\\;" in script else "prepared"]
            command += ["-R", str(rate)] if rate else []
            done = subprocess.run([*command, dsn], capture_output=True, text=True, check=False)
        found = re.search(r"tps = ([\d.]+)", done.stdout)
        if found is None:
            raise SystemExit(f"pgbench failed: {done.stderr.strip() or done.stdout}")
        return float(found[1])

    def started(self) -> int:
        """How many handlers have started."""
        return sum(file.stat().st_size for file in self.log.iterdir()) // RECORD.size

    def starts(self) -> list[tuple[float, float]]:
        """The handlers' records: the payload's t, the wall clock at the start."""
        found: list[tuple[float, float]] = []
        for file in self.log.iterdir():
            data = file.read_bytes()
            found += RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size])
        return found


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
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")
    return jobs / seconds


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of some values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def milliseconds(values: Sequence[float], *percents: float) -> str:
    """Return percentiles of seconds as text in milliseconds."""
    if not values:
        return "nothing measured"
    return ", ".join(f"p{percent:g} {percentile(values, percent) * 1000:.1f} ms" for percent in percents)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition with a deadline."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            raise SystemExit(f"bench: {what} did not happen within {seconds:.0f} s")
        sleep(0.002)


@contextmanager
def durable_server(quick: bool) -> Iterator[Bench]:
    """A server with durable commits on disk, and the directory for the handlers' records."""
    base = Path(tempfile.mkdtemp(prefix="mdm-bench-"))
    log = Path(tempfile.mkdtemp(prefix="mdm-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    os.chmod(base, 0o755)
    server = devserver.start(
        base,
        options={
            "fsync": "on",
            "shared_buffers": "512MB",
            "max_wal_size": "4GB",
            "max_connections": "100",
            "jit": "off",
        },
    )
    try:
        yield Bench(server, quick, log)
    finally:
        devserver.stop(server)
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(log, ignore_errors=True)
