"""What every chapter needs: a server that can be stopped, runners that can be killed, questions to the database."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import psycopg

from cluster import ROOT, running_server
from jobrunner import devserver, schema
from jobrunner.devserver import Server
from jobs import call, make_kind
from runnerkit import Command, eventually

Connection = psycopg.Connection[Any]
PATHS: Final = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "runner")])
# A crash of the server must not lose what it acknowledged; that the machine stays up is given.
OPTIONS: Final = {"synchronous_commit": "on"}
UNBOUND: Final = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
SETTINGS: Final = {
    "stale_ttl": "15 seconds",
    "base_delay": "0.2 seconds",
    "max_delay": "1 second",
    "max_attempts": 1000,
}
TABLE: Final = """
    create table public.effect (job_id bigint, part int, pid int, at timestamptz default clock_timestamp());
    create index on public.effect (job_id);
"""


@dataclass(slots=True)
class World:
    """One run of the chapters."""

    quick: bool
    server: Server
    marks: Path  # where handlers tell where they are
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Note that a promise was broken."""
        self.faults.append(text)
        print(f"  BROKEN: {text}", flush=True)

    def expect(self, true: bool, text: str) -> None:
        if not true:
            self.fault(text)

    def connect(self) -> Connection:
        """A connection that the timeouts of the database do not concern."""
        return psycopg.connect(self.server.dsn(), autocommit=True, options=UNBOUND)

    def runner(self, kinds: Sequence[str], *arguments: str, dsn: str | None = None, **environ: str) -> Command:
        """Start a runner of the chaos handlers; to be closed."""
        paths = os.pathsep.join(filter(None, [environ.pop("PATHS", ""), PATHS]))
        options = ["--kinds", ",".join(kinds), "--handlers", "chaos.handlers", *arguments]
        return Command(dsn or self.server.dsn(), *options, PYTHONPATH=paths, CHAOS_MARKS=str(self.marks), **environ)


@contextmanager
def world(quick: bool) -> Iterator[World]:
    """A fresh server with the schema and the table of effects."""
    sys.path.insert(0, str(ROOT / "runner"))
    with running_server(**OPTIONS) as server, tempfile.TemporaryDirectory(prefix="chaos-") as marks:
        schema.migrate(server.dsn())
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute(TABLE)
        yield World(quick, server, Path(marks))


def register(conn: Connection, *kinds: str, **settings: Any) -> None:
    for kind in kinds:
        make_kind(conn, kind, **{**SETTINGS, **settings})


def recover_of(conn: Connection, pids: Sequence[int]) -> int:
    """Recover what these processes have claimed, as if their TTL were over; rows that they hold locked stay."""
    conn.execute(
        "update mdm.aa_job"
        " set claimed_at = claimed_at - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour'"
        " where id in (select id from mdm.aa_job where status = 'running' and split_part(claimed_by, '/', 2) = any(%s)"
        "  for update skip locked)",
        ([str(pid) for pid in pids],),
    )
    return len(call(conn, "recover_stale_jobs"))


def effects(conn: Connection, kind: str) -> dict[int, int]:
    """How many effects each job of a kind has had."""
    query = (
        "select j.id, count(e.job_id) from mdm.aa_job j left join public.effect e on e.job_id = j.id"
        " where j.job_kind = %s group by j.id"
    )
    return dict(conn.execute(query, (kind,)).fetchall())


def states(conn: Connection, kind: str) -> dict[str, int]:
    """The jobs of a kind by status."""
    query = "select status::text, count(*) from mdm.aa_job where job_kind = %s group by status"
    return dict(conn.execute(query, (kind,)).fetchall())


def crash(server: Server) -> None:
    """Stop the server at once, as `pg_ctl stop -m immediate` does."""
    pid = devserver.running_pid(server)
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    eventually(lambda: devserver.running_pid(server) is None)


def restart(server: Server) -> float:
    """Start the server again; the seconds until it took a connection."""
    began = monotonic()
    devserver.start(server.base)
    psycopg.connect(server.dsn()).close()
    return monotonic() - began


def socket_path(server: Server) -> str:
    return str(server.socket_dir / f".s.PGSQL.{server.port}")
