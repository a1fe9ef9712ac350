"""What every scenario needs: a durable server, fresh databases, pgbench, a real jobrunner, its records."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from figures import Figure, percentile
from tables import settle

from jobrunner import devserver, schema
from jobrunner.devserver import Server
from leftovers import prefix

RECORD: Final = struct.Struct("<dd")  # what benchhandlers and the drivers of the peers write
HERE: Final = Path(__file__).resolve().parent
RUNNER: Final = HERE.parents[1] / "runner"
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for."""

    quick: bool = False
    json: bool = False
    peers: bool = False
    large: bool = False
    minutes: float | None = None


class Turns(NamedTuple):
    """What pgbench has done."""

    rate: float  # transactions a second
    done: int


@dataclass(slots=True)
class Bench:
    """One run of the scenarios: where, and how long."""

    server: Server
    options: Options
    log: Path
    figures: list[Figure] = field(default_factory=list)

    @property
    def quick(self) -> bool:
        """Whether it is only to be seen that it works."""
        return self.options.quick

    def report(
        self, scenario: str, measure: str, value: float, unit: str, of: float | None = None, limit: str = ""
    ) -> None:
        """Print a figure at once and keep it; `of` is what `limit` reached in the same run."""
        figure = Figure(scenario, measure, value, unit, of, limit)
        self.figures.append(figure)
        print(figure.json() if self.options.json else figure.text(), flush=True)

    def times(
        self,
        scenario: str,
        measure: str,
        seconds: Sequence[float],
        *percents: float,
        of: Sequence[float] = (),
        limit: str = "",
    ) -> None:
        """Report percentiles in milliseconds, beside those of other times; raises when nothing was measured."""
        if not seconds:
            raise SystemExit(f"bench: nothing was measured of {scenario}, {measure}")
        for percent in percents:
            beside = percentile(of, percent) * 1000 if of else None
            value = percentile(seconds, percent) * 1000
            self.report(scenario, f"{measure}, p{percent:g}", value, "ms", beside, limit)

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """A database without anything; the handlers' records begin anew."""
        name = f"bench_{next(_numbers)}"
        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as admin:
            admin.execute(f"create database {name}".encode())
        self.forget()
        try:
            yield self.server.dsn(name)
        finally:
            with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as admin:
                admin.execute(f"drop database {name} with (force)".encode())

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh migrated database with the kinds noop and write; the server is quiet when it starts."""
        with self.empty_database() as dsn:
            schema.migrate(dsn)
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute("create table bench_effect (job_id bigint)")
                conn.execute("select mdm.set_job_kind('noop'), mdm.set_job_kind('write')")
                settle(conn)
            yield dsn

    @contextmanager
    def runner(
        self, dsn: str, *arguments: str, kinds: str = "noop", environ: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A real jobrunner process, with metrics and heartbeats as in production; ended at the end."""
        command = [str(Path(sys.executable).with_name("jobrunner")), "--kinds", kinds, "--handlers", "benchhandlers"]
        command += ["--metrics-port", "0"]
        env = {"JOBRUNNER_DSN": dsn, "PYTHONPATH": f"{RUNNER}:{HERE}", **(environ or {})}
        with self.process([*command, *arguments], env) as process:
            yield process

    @contextmanager
    def process(self, command: Sequence[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, which leaves its records in BENCH_LOG; ended at the end."""
        process = subprocess.Popen(
            command,
            env={**os.environ, "BENCH_LOG": str(self.log), **environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def pgbench(
        self,
        dsn: str,
        script: str,
        *,
        clients: int,
        seconds: float | None = None,
        rate: float | None = None,
        transactions: int | None = None,
    ) -> Turns:
        """Run a script with pgbench, for some seconds or so many times a client."""
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            command = [str(self.server.bin / "pgbench"), "-n", "-j", "1", "-f", file.name]
            command += ["-c", str(clients), "-M", "simple" if "\\gset" in script else "prepared"]
            command += ["-T", str(int(seconds))] if seconds else ["-t", str(transactions)]
            command += ["-R", str(rate)] if rate else []
            done = subprocess.run([*command, dsn], capture_output=True, text=True, check=False)
        found = re.search(r"actually processed: (\d+).*?tps = ([\d.]+)", done.stdout, re.DOTALL)
        if found is None or done.returncode:
            raise SystemExit(f"pgbench failed: {done.stderr.strip() or done.stdout}")
        return Turns(float(found[2]), int(found[1]))

    def forget(self) -> None:
        """Let the handlers' records begin anew; no worker is there."""
        for file in self.log.iterdir():
            file.unlink()

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


@contextmanager
def durable_server(options: Options) -> Iterator[Bench]:
    """A server with durable commits on disk, and the directory for the handlers' records."""
    base = Path(tempfile.mkdtemp(prefix=f"{prefix()}bench"))
    log = Path(tempfile.mkdtemp(prefix=f"{prefix()}bench", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    os.chmod(base, 0o755)
    server = devserver.start(
        base,
        options={
            "fsync": "on",
            "shared_buffers": "512MB",
            "max_wal_size": "4GB",
            "max_connections": "200",
            "jit": "off",
            "log_line_prefix": "%a: ",  # pickups.py counts the statements of an application
        },
    )
    try:
        yield Bench(server, options, log)
    finally:
        devserver.stop(server)
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(log, ignore_errors=True)
