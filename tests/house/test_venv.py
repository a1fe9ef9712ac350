"""bin/_venv.sh: what bin/run, bin/test and bin/dev-db say when there is no Python that serves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import ROOT

pytestmark = pytest.mark.one_leg("15")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without .venv: only what the scripts need before they have one."""
    (tmp_path / "bin").mkdir()
    for name in ("bin/_venv.sh", "bin/dev-db", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def dev_db(checkout: Path, python: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "bin" / "dev-db", "status"],
        env={**os.environ, "PYTHON": str(python)},
        cwd="/",
        capture_output=True,
        text=True,
    )


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_venv_needs_python_3_11(checkout: Path) -> None:
    done = dev_db(checkout, program(checkout / "python3.9", "exit 1"))
    assert done.returncode == 1
    assert done.stderr.startswith("dev-db: Python 3.11 or newer is needed (found: ")
    assert done.stderr.count("\n") == 1
    assert not (checkout / ".venv").exists()


def test_venv_names_the_package_when_the_module_is_missing(checkout: Path) -> None:
    # Debian's python3 comes without ensurepip
    bare = program(checkout / "bare", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    done = dev_db(checkout, bare)
    assert done.returncode == 1
    assert done.stderr == f"dev-db: {bare} has no venv module: install it (Debian: apt-get install python3-venv)\n"


def test_venv_that_cannot_be_filled_is_an_error_and_tried_again(checkout: Path) -> None:
    # a venv without pip, which is also quicker to make
    without_pip = f"""case "$2" in venv) shift 2; exec {sys.executable} -m venv --without-pip "$@";; esac"""
    python = program(checkout / "python", f'{without_pip}; exec {sys.executable} "$@"')
    for _ in range(2):
        done = dev_db(checkout, python)
        assert done.returncode == 1
        assert "dev-db: pip install failed: see above" in done.stderr


def test_venv_is_left_alone_when_nothing_changed(checkout: Path) -> None:
    script = 'source bin/_venv.sh; ensure_venv "$1" && cat .venv/.extras'
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    program(venv / "bin" / "python", "echo called >&2; exit 1")
    mark = subprocess.run(
        ["bash", "-c", "source bin/_venv.sh; venv_mark"], cwd=checkout, capture_output=True, text=True
    )
    (venv / ".extras").write_text(mark.stdout + "dev\nembedded\n")

    def ensure(extras: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", script, "x", extras], cwd=checkout, capture_output=True, text=True)

    assert ensure("embedded").returncode == 0
    assert ensure("embedded,dev").stderr == ""
    assert "called" in ensure("embedded,demo").stderr  # one more is to be installed
