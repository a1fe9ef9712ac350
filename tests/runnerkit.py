"""Runs the pool: in this process with handlers of the test, or as the real command with handlers of a module."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from jobrunner.db.connect import Target
from jobrunner.job import Handler
from jobrunner.metrics import Meter
from jobrunner.pool import Pool
from jobrunner.shared import Mode, Plan, Tally
from jobrunner.signals import Signals
from jobrunner.wake import Wake

COMMAND = Path(sys.executable).with_name("jobrunner")
TESTS = Path(__file__).parent
PATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def eventually(condition: Callable[[], Any], seconds: float = 30, every: float = 0.02) -> Any:
    """Wait until the condition gives something true, and return that; fail after so many seconds.

    A longer limit costs nothing where the condition comes true: a short one fails on a busy machine.
    """
    deadline = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < deadline, f"not within {seconds} s: {condition}"
        sleep(every)
    return found


def nobody(tally: Tally) -> None:
    """Watch nothing."""


def drain(dsn: str, handlers: Mapping[str, Handler], *, meter: Meter | None = None, **plan: Any) -> Tally:
    """Run a pool in this process until nothing is due; its plan may say otherwise."""
    options: dict[str, Any] = {"concurrency": 1, "mode": Mode.DRAIN, **plan}
    pool = Pool(Plan(target=Target(dsn), handlers=handlers, **options), wake := Wake(), Signals(wake), meter)
    pool.prepare()
    pool.run(nobody)
    wake.close()
    return pool.tally


class Serving:
    """A pool that serves in a thread of this process; `signals.count` is raised as a signal would."""

    def __init__(self, pool: Pool, signals: Signals) -> None:
        self.pool = pool
        self.signals = signals
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.pool.run(nobody)
        except BaseException as error:
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 30) -> None:
        """Ask it to end, as one SIGTERM does, and wait for the end."""
        self.signals.count += 1
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the pool does not end"


@contextmanager
def serving(dsn: str, handlers: Mapping[str, Handler], **plan: Any) -> Iterator[Serving]:
    """A pool that serves in this process for the time of a with block."""
    where = Target(dsn)
    options: dict[str, Any] = {"target": where, "concurrency": 1, "grace_seconds": 5.0, "listen": where, **plan}
    signals = Signals(wake := Wake())
    pool = Pool(Plan(handlers=handlers, **options), wake, signals)
    pool.prepare()
    found = Serving(pool, signals)
    found.start()
    try:
        yield found
    finally:
        found.stop()
        wake.close()


class Command:
    """A `jobrunner` process; what it writes goes to files."""

    def __init__(self, dsn: str, *arguments: str, **environ: str) -> None:
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "JOBRUNNER_DSN"))}
        self.process = subprocess.Popen(
            [str(COMMAND), *arguments],
            stdout=self._out,
            stderr=self._err,
            stdin=subprocess.DEVNULL,
            env={**clean, "JOBRUNNER_DSN": dsn, "PYTHONPATH": PATH, **environ},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return _text(self._out)

    @property
    def log(self) -> str:
        return _text(self._err)

    def events(self, name: str) -> list[str]:
        """The log lines of an event."""
        return [line for line in self.log.splitlines() if re.match(rf"\S+ \w+ {name}( |$)", line)]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 60) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        self._out.close()
        self._err.close()


def _text(file: Any) -> str:
    return Path(f"/proc/self/fd/{file.fileno()}").read_text(encoding="utf-8", errors="replace")


@contextmanager
def jobrunner(dsn: str, *arguments: str, **environ: str) -> Iterator[Command]:
    """A `jobrunner` process for the time of a with block, killed at the end; SIGTERM is the test's business."""
    command = Command(dsn, *arguments, **environ)
    try:
        yield command
    except BaseException:
        print(f"exit code {command.process.poll()}, stdout:\n{command.out}\nstderr:\n{command.log}")
        raise
    finally:
        command.close()


def run(dsn: str, *arguments: str, seconds: float = 120, **environ: str) -> tuple[int, str, str]:
    """Run a `jobrunner` command to its end: exit code, stdout, stderr."""
    with jobrunner(dsn, *arguments, **environ) as command:
        return command.end(seconds), command.out, command.log


def said(lines: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    """The fields of the lines of an event."""
    return [vars(record)["fields"] for record in lines.records if record.getMessage() == name]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def options(kinds: Sequence[str], *more: str) -> list[str]:
    """The options of a runner of the test handlers."""
    return ["--kinds", ",".join(kinds), "--handlers", "testhandlers", *more]


TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
