"""What a run that was killed leaves behind is swept by the next one, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrunner import devserver
from jobrunner.devserver import Server
from leftovers import identity, prefix, sweep
from runnerkit import PATH, eventually

pytestmark = pytest.mark.one_leg("18")

RUN = """
import subprocess, sys
from cluster import make_base
from jobrunner import devserver
from leftovers import begin_run
begin_run()
child = subprocess.Popen(["sleep", "60"])
print(devserver.start(make_base()).base, child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def dead() -> str:
    """The beginning of the names of a dead process's directories."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = identity(process.pid)
    return f"mdm-{owner}-"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no server."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_sweep_ends_what_a_killed_run_has_started_and_removes_its_files() -> None:
    environ = {**os.environ, "PYTHONPATH": PATH}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        name, child = run.stdout.readline().split()
        base = Path(name)
        server = Server(base, base, base)
        pid, of_child = devserver.running_pid(server), identity(int(child))
        sweep()
        assert devserver.running_pid(server) == pid is not None, "its owner lives"
        assert identity(int(child)) == of_child is not None, "its owner lives"
        run.kill()
    assert devserver.running_pid(server) == pid, "it would run for ever"
    assert identity(int(child)) == of_child, "it would run for ever"
    sweep()
    assert (identity(pid), base.exists()) == (None, False)
    eventually(lambda: identity(int(child)) is None)


def test_sweep_leaves_a_process_alone_that_has_the_pid_of_a_server_that_ended(
    tmp_path: Path, dead: str, stranger: subprocess.Popen[bytes]
) -> None:
    data = tmp_path / f"{dead}abc_1234" / "data"
    data.mkdir(parents=True)
    (data / "postmaster.pid").write_text(f"{stranger.pid}\n{data}\n")
    sweep([tmp_path])
    assert (list(tmp_path.iterdir()), stranger.poll()) == ([], None)


def test_sweep_leaves_what_it_does_not_know(tmp_path: Path, dead: str) -> None:
    space, pid, start = dead.removeprefix("mdm-").strip("-").split("-")
    elsewhere, later = f"mdm-{int(space) + 1}-{pid}-{start}-abc", f"{prefix()}abc"
    for name in ("mdm-abc", "mdm-1-2-3-4", "mdm-a-b-c-d", f"x{dead}abc", elsewhere, later):
        (tmp_path / name).mkdir()
    (tmp_path / f"{dead}file").touch()
    (tmp_path / f"{dead}link").symlink_to(tmp_path / "mdm-abc")
    before = sorted(tmp_path.iterdir())
    sweep([tmp_path])
    assert sorted(tmp_path.iterdir()) == before
