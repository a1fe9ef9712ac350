"""bin/test: adds up its legs, and an interrupt ends them all. The legs are stubs, it is the script that is tested."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import ROOT
from runnerkit import eventually

pytestmark = pytest.mark.one_leg("18")

VENV = """root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
py=$root/python
ensure_venv() { :; }
"""
# In the place of Python: says which part it is, and ends as the test wants, or when it is interrupted.
PYTHON = """#!/usr/bin/env bash
[ "$2" = pytest ] || { echo /nowhere; exit; }
part=$JOBRUNNER_TEST_PART
echo "this is $part"
if [ "$STUB_WAITS" ]; then
  trap 'echo >stopped.$part; exit 2' INT
  echo >began.$part
  for _ in {1..600}; do sleep 0.1; done
fi
echo "$STUB_COUNTS" >"$JOBRUNNER_TEST_COUNTS"
[ "$part" = rest ] || exit "$STUB_CODE"
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start bin/test of a checkout with stubs, on one server and two processors."""
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "bin" / "test", tmp_path / "bin" / "test")
    (tmp_path / "bin" / "_venv.sh").write_text(VENV)
    for name, text in (("python", PYTHON), ("getconf", "#!/bin/sh\necho 2\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    started: list[subprocess.Popen[str]] = []

    def start_one(*, waits: str = "", counts: str = "3 0 1", code: str = "0") -> subprocess.Popen[str]:
        stubs = {"STUB_WAITS": waits, "STUB_COUNTS": counts, "STUB_CODE": code}
        environ = {**os.environ, **stubs, "JOBRUNNER_TEST_LEGS": "18", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        process = subprocess.Popen(
            [tmp_path / "bin" / "test"],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in what runs in the background
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=30)


@pytest.mark.parametrize(("counts", "code"), [("3 0 1", "0"), ("2 1 1", "1")])
def test_bin_test_adds_up_its_legs_and_ends_as_the_worst(start: Start, counts: str, code: str) -> None:
    process = start(counts=counts, code=code)
    said, _ = process.communicate(timeout=60)
    passed, failed, skipped = (2 * int(number) for number in counts.split())
    assert said.splitlines()[-1] == f"{passed} passed, {failed} failed, {skipped} skipped"
    assert process.returncode == int(code)
    assert said.index("this is rest") < said.index("this is journeys"), "what the other leg said is shown at its end"


def test_bin_test_interrupted_stops_all_legs(start: Start, tmp_path: Path) -> None:
    process = start(waits="yes")
    eventually(lambda: len(list(tmp_path.glob("began.*"))) == 2)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert sorted(path.name for path in tmp_path.glob("stopped.*")) == ["stopped.journeys", "stopped.rest"]
