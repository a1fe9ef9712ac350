"""bin/run in a copy of the tree, as a newcomer has it: first run, second run with --keep."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from cluster import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.one_leg("15")]
FIRST_SECONDS = 300
SECOND_SECONDS = 120
NOT_COPIED = (".git", ".venv*", ".dev", ".*_cache", ".hypothesis", "__pycache__", "dist", "build", "*.egg-info")


@pytest.fixture
def tree() -> Iterator[Path]:
    """A copy of what is in the repository, without .venv and without a server."""
    copy = Path(tempfile.mkdtemp(prefix="mdm-run-"))
    copy.chmod(0o755)
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True)
    yield copy
    call(copy, "bin/dev-db", "stop")
    shutil.rmtree(copy)


def call(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the tree without the database settings of whoever runs the tests."""
    outside = ("PG", "PYTHONPATH", "JOBRUNNER_DSN")
    environment = {key: text for key, text in os.environ.items() if not key.startswith(outside)}
    environment["PIP_NO_COMPILE"] = "1"  # most of what is installed is never imported
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=FIRST_SECONDS, check=False
    )


def server_is_up(tree: Path) -> bool:
    return call(tree, "bin/dev-db", "url").returncode == 0


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "it did not happen in time"
        sleep(0.1)


def sums(said: str) -> list[int]:
    """Return the sums of registered, rebuilt, changed and right rows."""
    found = re.search(r"^ +all +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) ", said, re.MULTILINE)
    assert found, said
    return [int(number.replace(",", "")) for number in found.groups()]


def test_run_shows_the_whole_twice_and_keeps_up_when_told(tree: Path) -> None:
    first = call(tree, "bin/run")
    assert first.returncode == 0, first.stdout + first.stderr
    registered, rebuilt, changed, right = sums(first.stdout)
    assert registered == rebuilt == changed == right > 60_000
    assert re.search(r"Tokyo International Airport +airport +Japan +Asia", first.stdout)
    assert re.search(r"job_enqueued +by steward +as postgres", first.stdout)
    assert re.search(r"job_done +by reindex worker +as mdm_demo_worker", first.stdout)
    assert not server_is_up(tree)

    began = monotonic()
    second = call(tree, "bin/run", "--keep")
    assert second.returncode == 0, second.stdout + second.stderr
    assert monotonic() - began < SECOND_SECONDS
    assert "all there already" in second.stdout
    assert sums(second.stdout)[:2] == [registered, registered]
    look_around(tree, second.stdout)


def look_around(tree: Path, said: str) -> None:
    """Do what --keep proposes: psql, a job for the runner, the end."""
    psql = next(line for line in said.splitlines() if "psql '" in line).strip()
    ask = next(line for line in said.splitlines() if "request_reindex" in line).strip()
    pid = int(re.search(r"kill (\d+);", said)[1])  # type: ignore[index] # a None fails the test as it should
    try:
        job_id = call(tree, "sh", "-c", f'{psql} -XAtc "$0"', ask).stdout.strip()
        query = f"select status from mdm.get_job({job_id})"
        wait_for(lambda: call(tree, "sh", "-c", f'{psql} -XAtc "$0"', query).stdout.strip() == "done")
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")


@pytest.mark.parametrize("arguments", [["--bogus"], ["--all", "--keep", "x"], ["x"], [""]])
def test_run_refuses_an_unknown_option_in_one_line(arguments: list[str]) -> None:
    refused = call(ROOT, "bin/run", *arguments)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert re.fullmatch(r"run: unknown option .*: bin/run --help lists what there is\n", refused.stderr)


def test_run_helps() -> None:
    helped = call(ROOT, "bin/run", "--help")
    assert helped.returncode == 0
    assert "usage: bin/run [--all] [--keep]" in helped.stdout
