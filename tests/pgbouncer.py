"""A pgbouncer of the test's own in transaction mode, on 127.0.0.1, before a server of the tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cluster import ROLES, missing
from jobrunner.demo.ports import free_port
from jobrunner.devbinaries import own, server_user
from jobrunner.devserver import Server
from runnerkit import eventually

CONFIG = """
[databases]
* = host={socket_dir} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 200
logfile = {directory}/log
pidfile = {directory}/pid
"""


def program() -> str:
    """The path of pgbouncer; skips the test where there is none."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        missing("pgbouncer", "it is not installed: apt-get install pgbouncer")
    return str(found)


@contextmanager
def pgbouncer(server: Server, servers: int = 4) -> Iterator[int]:
    """Run it with so many connections to each database; gives its port. It refuses root, as the server does."""
    path = program()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pgb-") as name:
        directory = Path(name)
        logins = [server.superuser, *(f"test_{role}" for role in ROLES)]
        (directory / "users").write_text("".join(f'"{login}" ""\n' for login in logins))
        (directory / "ini").write_text(
            CONFIG.format(
                socket_dir=server.socket_dir,
                port=server.port,
                listen_port=port,
                directory=directory,
                servers=servers,
            )
        )
        for each in (directory, directory / "users", directory / "ini"):
            own(each)
        user = server_user()
        drop = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        process = subprocess.Popen(
            [path, "-q", str(directory / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **drop
        )
        try:
            eventually(lambda: _answers(process, port))
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, f"pgbouncer has ended with {process.returncode}"
    with socket.socket() as peer:
        return peer.connect_ex(("127.0.0.1", port)) == 0


def through(dsn: str, port: int) -> str:
    """The DSN of a database by way of the pooler."""
    known = psycopg.conninfo.conninfo_to_dict(dsn)
    return f"postgresql://{known['user']}@127.0.0.1:{port}/{known['dbname']}?sslmode=disable&gssencmode=disable"
