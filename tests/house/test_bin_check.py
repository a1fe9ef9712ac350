"""bin/check: asked for help it gives that, and checks nothing."""

from __future__ import annotations

import subprocess

import pytest

from cluster import ROOT

pytestmark = pytest.mark.one_leg("15")


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_bin_check_help_checks_nothing(option: str) -> None:
    done = subprocess.run([ROOT / "bin" / "check", option], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("usage: bin/check")
    assert "==" not in done.stdout
