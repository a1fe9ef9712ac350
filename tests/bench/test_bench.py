"""bin/bench runs: every scenario would take minutes, so one that uses all of its parts stands for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster import missing
from jobrunner import devserver

pytestmark = pytest.mark.one_leg("15")

RUN = Path(__file__).with_name("run.py")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run bin/bench as a process of its own."""
    return subprocess.run(
        [sys.executable, str(RUN), *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
def test_bench_drains_and_reports() -> None:
    if not (devserver.find_bin() / "pgbench").exists():
        missing("pgbench", f"{devserver.find_bin()} comes without it")
    done = bench("--quick", "drain")
    assert done.returncode == 0, done.stderr
    assert "10,000 no-op jobs, audit_level full" in done.stdout


def test_bench_names_the_scenarios_it_has() -> None:
    done = bench("nosuch")
    assert done.returncode == 2
    assert "choose from enqueue, drain" in done.stderr
