"""bin/bench runs: all scenarios would take minutes, so two that use most of its parts stand for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster import ROOT, missing
from jobrunner import devserver

pytestmark = pytest.mark.one_leg("15")

RUN = Path(__file__).with_name("run.py")
NOWHERE = dict.fromkeys(("BENCH_NODE", "BENCH_NODE22", "BENCH_PYTHON"), "/nowhere/program")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run bin/bench as a process of its own, where no peer is installed."""
    return subprocess.run(
        [sys.executable, str(RUN), *arguments],
        env={**os.environ, **NOWHERE},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_bench_measures_and_reports() -> None:
    if not (devserver.find_bin() / "pgbench").exists():
        missing("pgbench", f"{devserver.find_bin()} comes without it")
    done = bench("--quick", "--json", "--peers", "--minutes", "0.05", "drain", "held-snapshot")
    assert done.returncode == 0, done.stderr
    for peer in ("pg-boss", "graphile-worker", "pgqueuer", "procrastinate"):
        assert f"{peer} is left out" in done.stderr
    figures: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert {figure["scenario"] for figure in figures} == {"drain", "held-snapshot"}
    for figure in figures:
        assert isinstance(figure["value"], int | float)
        assert figure["unit"]
        assert figure.keys() >= {"of", "ratio", "limit"} or not figure.keys() & {"of", "ratio", "limit"}
        if "of" in figure:
            assert figure["ratio"] == pytest.approx(figure["value"] / figure["of"], rel=0.01, abs=0.001)
    values = {figure["measure"]: figure["value"] for figure in figures}
    for measure in ("audit full", "audit full: CPU of the machine", "audit full: memory of the process"):
        assert values[f"5,000 no-op jobs, {measure}"] > 0
    assert values["800/s for 3 s: left 5 s after the end"] == 0


def test_bench_names_the_scenarios_it_has() -> None:
    done = bench("nosuch")
    assert done.returncode == 2
    assert "choose from enqueue, drain" in done.stderr


def test_bench_scenarios_are_all_explained() -> None:
    listed = bench("--help").stdout.split("one or more of: ")[1].split(" (default")[0]
    page = (ROOT / "docs" / "how-to" / "measure.md").read_text(encoding="utf-8")
    for name in "".join(listed.split()).split(","):
        assert f"\n| `{name}` | " in page
