"""bin/chaos in its short form: every window hit, every failure once or more, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cluster import ROOT

PATHS = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "runner")])


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run bin/chaos as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "chaos", *arguments],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "chapters",
    [
        pytest.param(("windows", "zombies"), marks=pytest.mark.one_leg("18")),
        pytest.param(("silent", "returns", "failover"), marks=pytest.mark.one_leg("15")),
        pytest.param(("disk", "storm"), marks=pytest.mark.one_leg("18")),
    ],
)
def test_chaos_loses_nothing(chapters: tuple[str, ...]) -> None:
    done = chaos("--quick", *chapters)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOTHING LOST" in done.stdout
    assert "BROKEN" not in done.stdout


@pytest.mark.one_leg("15")
def test_chaos_names_the_chapters_it_has() -> None:
    done = chaos("nosuch")
    assert done.returncode == 2
    assert "windows" in done.stderr
