"""The wheel carries everything: installed in a clean environment it migrates from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cluster import ROOT
from jobrunner import schema

pytestmark = [pytest.mark.slow, pytest.mark.one_leg("15")]


def run(*command: str | Path) -> str:
    environ = {**os.environ, "PIP_NO_COMPILE": "1"}  # most of what is installed is never imported
    done = subprocess.run([*command], cwd="/", env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_in_a_clean_environment_migrates_from_the_root_directory(tmp_path: Path, empty_dsn: str) -> None:
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet", "--quiet"]
    run(sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("mdm_jobs-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    run(sys.executable, *pip, "--python", tmp_path / "venv" / "bin" / "python", "install", wheel)
    jobrunner = tmp_path / "venv" / "bin" / "jobrunner"
    run(jobrunner, "migrate", "--dsn", empty_dsn)
    run(jobrunner, "migrate", "--dsn", empty_dsn)
    run(jobrunner, "migrate", "--check", "--dsn", empty_dsn)
    assert schema.check(empty_dsn).current
    with psycopg.connect(empty_dsn) as conn:
        schema.require_schema(conn)
