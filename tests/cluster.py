"""The servers and databases that the tests run on: ours as root and as anybody, in memory where there is room."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from jobrunner import devserver, schema
from jobrunner.devserver import Server
from leftovers import SHM, prefix
from sqlcoverage import databases, sql_coverage

ROOT = Path(__file__).resolve().parents[1]
ROLES = ("mdm_owner", "mdm_producer", "mdm_worker", "mdm_admin", "mdm_monitor", "mdm_indexer", "mdm_platform")
# Nothing here survives a power cut, and nothing has to. Deadlocks are found quickly.
OPTIONS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "deadlock_timeout": "200ms",
    "shared_buffers": "128MB",
}
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class PgServer:
    """The session's server, in the words of pytest-postgresql (depends_on)."""

    server: Server
    host: str
    port: int
    user: str
    password: str = ""
    options: str = ""
    maintenance_dbname: str = "postgres"
    template_dbname: None = None
    dbname: str = "mdm_template"

    def dsn(self, dbname: str) -> str:
        """Return the URI of a database, as the installer (a superuser)."""
        return self.server.dsn(dbname)


def make_base() -> Path:
    """Make a short directory for a server: in memory when that has a GiB, since template copies are 5-20x quicker."""
    roomy = SHM.is_dir() and os.access(SHM, os.W_OK | os.X_OK) and shutil.disk_usage(SHM).free >= 1 << 30
    return Path(tempfile.mkdtemp(prefix=prefix(), dir=SHM if roomy else None))


def has_pg_cron() -> bool:
    """Whether the binaries that the tests run on come with pg_cron."""
    major = devserver.find_bin().parent
    return any((major / "lib").glob("pg_cron.so")) or Path(f"/usr/lib/postgresql/{major.name}/lib/pg_cron.so").exists()


@cache
def blank_cluster(binaries: Path) -> Path:
    """The files of a server that has nothing in it yet, made once a run: to copy them is quicker than initdb."""
    base = make_base()
    atexit.register(shutil.rmtree, base)
    server = devserver.start(base, binaries)
    devserver.stop(server)
    return server.data


@contextmanager
def running_server(**options: str) -> Iterator[Server]:
    """A server of one's own, for tests that stop, kill or reconfigure it."""
    base = make_base()
    subprocess.run(["cp", "-a", blank_cluster(devserver.find_bin()), base], check=True)
    server = devserver.start(base, options=sql_coverage.options({**OPTIONS, **options}))
    try:
        yield server
        if sql_coverage.wanted and devserver.running_pid(server) is not None:
            with psycopg.connect(server.dsn("postgres")) as conn:
                names = databases(conn)
            for name in names:
                sql_coverage.add(server.dsn(name))
    finally:
        devserver.stop(server)
        shutil.rmtree(base)


def crash(server: Server) -> None:
    """Stop the server as a power cut would."""
    command = [server.bin / "pg_ctl", "-D", server.data, "-m", "immediate", "-w", "stop"]
    assert devserver.run(command, server.base).returncode == 0


@contextmanager
def database(pg_server: PgServer, template: str | None = None) -> Iterator[str]:
    """A database of one's own, as a URI; dropped at the end whoever is still connected.

    Copied as files, which is quicker where nothing waits for a disk. Its sessions are ended before the drop, which
    looks every 100 ms only.
    """
    name = f"mdm_{next(_numbers)}"
    made, source = sql.Identifier(name), sql.Identifier(template or "template1")
    with psycopg.connect(pg_server.dsn("postgres"), autocommit=True) as admin:
        if template is not None:
            end_sessions(admin, template)
        admin.execute(sql.SQL("create database {} template {} strategy file_copy").format(made, source))
    try:
        yield pg_server.dsn(name)
        sql_coverage.add(pg_server.dsn(name))
    finally:
        with psycopg.connect(pg_server.dsn("postgres"), autocommit=True) as admin:
            admin.execute(sql.SQL("alter database {} allow_connections false").format(made))
            end_sessions(admin, name)
            admin.execute(sql.SQL("drop database {} with (force)").format(made))


def make_logins(conn: psycopg.Connection[Any]) -> None:
    """Make a login role test_<role> for each of our roles, a member of it."""
    for role in ROLES:
        login = sql.Identifier(f"test_{role}")
        if not conn.execute("select 1 from pg_roles where rolname = %s", (f"test_{role}",)).fetchone():
            conn.execute(sql.SQL("create role {} login in role {}").format(login, sql.Identifier(role)))


JOBS: LiteralString = """
    select id, job_kind, status, attempts, lease_no, available_at, claimed_at, completed_at, left(last_error, 200)
    from mdm.aa_job
    order by id
    limit 50
"""
SESSIONS: LiteralString = """
    select pid, application_name, state, wait_event_type, wait_event, left(query, 200)
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""
TABLES: LiteralString = """
    select quote_ident(c.relname)
    from pg_class c
    where c.relnamespace = 'mdm'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname not like '%yoyo%' and c.relname <> 'aa_schema_object'
"""


def end_sessions(conn: psycopg.Connection[Any], name: str | None = None, seconds: float = 30.0) -> None:
    """End all other sessions of a database, by default this one, and wait until they are gone.

    Not by the timeout of pg_terminate_backend: the server looks every 100 ms only, which is longer than most tests.
    """
    deadline = monotonic() + seconds
    while conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = coalesce(%s, current_database()) and pid <> pg_backend_pid()"
        " and backend_type = 'client backend'",
        (name,),
    ).fetchall():
        assert monotonic() < deadline, "a session of an earlier test does not end"
        sleep(0.001)


def clean(conn: psycopg.Connection[Any]) -> None:
    """Bring the shared database back to what migrate leaves: no sessions, no rows but the seed."""
    end_sessions(conn)
    deletes = "".join(f"delete from mdm.{name};" for (name,) in conn.execute(TABLES))
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")  # foreign keys ask for no order
        conn.execute("set local lock_timeout = '10s'")
        conn.execute(deletes.encode())
        conn.execute("set local session_replication_role = origin")
        seed(conn)


def seed(conn: psycopg.Connection[Any]) -> None:
    """Apply the seed again, as the roles that own the tables."""
    for path in schema.listed_files("once.sql", "seed"):
        conn.execute((ROOT / "sql" / path).read_bytes())


def what_it_holds(dsn: str) -> str:
    """Tell the first jobs of a database and its sessions, for whoever looks into a failure."""
    try:
        with psycopg.connect(dsn, connect_timeout=5, options="-c statement_timeout=5s") as conn:
            found = [*conn.execute(JOBS).fetchall(), *conn.execute(SESSIONS).fetchall()]
    except psycopg.Error as error:
        return str(error)
    return "\n".join("  ".join(map(str, row)) for row in found)


def missing(name: str, reason: str) -> None:
    """Skip the test for want of `name`, or fail it where MDM_REQUIRE (comma separated) says that it must be there."""
    if name in os.environ.get("MDM_REQUIRE", "").split(","):
        pytest.fail(f"{name} is required here, but {reason}")
    pytest.skip(f"{name}: {reason}")
