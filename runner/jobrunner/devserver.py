"""A throw-away PostgreSQL server for development and tests: starts as root and as an ordinary user.

Stands alone on purpose: the runner never imports it, and it needs nothing but the standard library and a
directory of PostgreSQL binaries. Production uses the operator's server.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from jobrunner.devbinaries import DevServerError as DevServerError
from jobrunner.devbinaries import find_bin as find_bin
from jobrunner.devbinaries import last_line, own, reachable, run, usable_bin
from jobrunner.devbinaries import version as version

SOCKET_PATH_BYTES: Final = 107
START_SECONDS: Final = 60
DATABASE: Final = "mdm"


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
    done = run([server.bin / "pg_ctl", "-D", server.data, "-m", "fast", "-w", "stop"], server.base)
    if done.returncode != 0:
        raise DevServerError(f"the server below {server.base} does not stop: {last_line(done.stdout)}")


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
    done = run([server.bin / "initdb", "-D", scratch, *flags], server.base)
    if done.returncode != 0:
        raise DevServerError(f"initdb failed below {server.base}: {last_line(done.stdout)}")
    with (scratch / "postgresql.conf").open("a", encoding="utf-8") as conf:
        conf.write("\ninclude_if_exists 'dev.conf'\n")
    # Without a client in the standard library, single-user mode is how a database is made.
    done = run(
        [server.bin / "postgres", "--single", "-D", scratch, "postgres"],
        server.base,
        text=f"create database {DATABASE}\n",
    )
    if done.returncode != 0:
        raise DevServerError(f"no database {DATABASE} could be made: {last_line(done.stdout)}")
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
    done = run(
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
        return last_line(said)
    return lines[0] if lines[-1].endswith("contains errors") else lines[-1]
