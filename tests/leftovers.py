"""What a killed run leaves behind: servers with their directories, and other processes, such as runners.

The names of the directories and the environment of the processes tell which process they belonged to.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from jobrunner import devserver
from jobrunner.devbinaries import server_user
from jobrunner.devserver import Server

SHM = Path("/dev/shm")
NAME = re.compile(r"mdm-(?P<owner>\d+-\d+-\d+)-\w+")
MARK = "MDM_TEST_RUN"  # in the environment of all that a run starts
END_SECONDS = 15.0  # an immediate stop kills after five


def begin_run() -> None:
    """Sweep what killed runs left behind, and mark what this process will start."""
    sweep()
    mine = identity(os.getpid())
    if mine is not None:
        os.environ[MARK] = mine


def prefix() -> str:
    """The beginning of the names of this process's directories."""
    mine = identity(os.getpid())
    return "mdm-" if mine is None else f"mdm-{mine}-"


def identity(pid: int) -> str | None:
    """Name a living process as none before or after it: namespace, pid and time of start; None when it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{space}-{pid}-{fields[19]}"


def sweep(parents: Iterable[Path] = (SHM, Path(tempfile.gettempdir()))) -> None:
    """Remove the directories of this user whose owners are dead, stop the servers there, kill what else they began."""
    for base in [path for parent in set(parents) if parent.is_dir() for path in parent.glob("mdm-*-*-*-*")]:
        if _left(base):
            _remove(base)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            _kill_if_left(int(process.name))


def _left(base: Path) -> bool:
    """Whether it was made by a process that does not live any more, as this user."""
    found = NAME.fullmatch(base.name)
    if found is None or not _dead(found["owner"]):
        return False
    user = server_user()  # owns the files where we are root
    try:
        status = base.lstat()
    except FileNotFoundError:  # somebody else sweeps too
        return False
    ours = status.st_uid == os.geteuid() or (user is not None and status.st_uid == user.pw_uid)
    return stat.S_ISDIR(status.st_mode) and ours


def _dead(owner: str) -> bool:
    """Whether this names a process of this machine (or container) that does not live any more."""
    mine, (space, pid, _) = identity(os.getpid()), owner.split("-")
    return mine is not None and mine.startswith(f"{space}-") and identity(int(pid)) != owner


def _remove(base: Path) -> None:
    server = Server(bin=base, base=base, socket_dir=base)
    deadline = monotonic() + END_SECONDS
    pid = devserver.running_pid(server)
    if pid is not None:
        os.kill(pid, signal.SIGQUIT)
    while devserver.running_pid(server) is not None and monotonic() < deadline:
        sleep(0.02)
    shutil.rmtree(base, ignore_errors=True)


def _kill_if_left(pid: int) -> None:
    """Kill a process that a dead run has begun. Raises OSError."""
    environ = Path(f"/proc/{pid}/environ").read_text(errors="replace")
    found = re.search(rf"(?:^|\0){MARK}=(\d+-\d+-\d+)\0", environ)
    if found is not None and pid != os.getpid() and _dead(found[1]):
        os.kill(pid, signal.SIGKILL)
