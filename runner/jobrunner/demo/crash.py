"""A stale claim, made as they are made: a runner is killed while the mail server has it wait."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Event
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from jobrunner.demo.command import command, environment
from jobrunner.demo.postbox import Postbox
from jobrunner.errors import JobrunnerError

RUNNER: Final = ("--kinds", "email_send", "--concurrency", "1", "--log-level", "warning")
WAIT_SECONDS: Final = 30.0
STALE_TTL: Final = "15 seconds"  # the shortest that there is


@contextmanager
def short_ttl(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Let claims of email_send be stale soon, for the time of a with block."""
    row = conn.execute("select stale_ttl::text from mdm.aa_job_kind where job_kind = 'email_send'").fetchone()
    assert row is not None
    set_ttl = "select mdm.set_job_kind('email_send', %s)"
    conn.execute(set_ttl, [Jsonb({"stale_ttl": STALE_TTL})])
    try:
        yield
    finally:
        conn.execute(set_ttl, [Jsonb({"stale_ttl": row[0]})])


def kill_runner(
    conn: psycopg.Connection[Any], box: Postbox, address: str, settings: Mapping[str, str]
) -> tuple[int, list[int]]:
    """Start a runner and kill it while it sends to this address; gives its pid and the jobs that it had claimed."""
    reached, killed = Event(), Event()
    answer = box.on_rcpt

    def hold(to: str) -> str | None:
        if to != address:
            return answer(to)
        reached.set()
        killed.wait(WAIT_SECONDS)
        return None

    box.on_rcpt = hold
    runner = subprocess.Popen(command(RUNNER), env=environment(settings), stdin=subprocess.DEVNULL)
    try:
        if not reached.wait(WAIT_SECONDS):
            raise JobrunnerError(f"the runner has sent no mail within {WAIT_SECONDS:.0f} s: see its log above")
    finally:
        runner.kill()
        runner.wait()
        killed.set()
        box.on_rcpt = answer
    claimed = conn.execute(
        """select id from mdm.aa_job where status = 'running' and split_part(claimed_by, '/', 2) = %s
           order by id""",
        [str(runner.pid)],
    ).fetchall()
    return runner.pid, [row[0] for row in claimed]


def stale_at(conn: psycopg.Connection[Any], job_ids: list[int]) -> datetime:
    """Return when all of these claims are stale."""
    row = conn.execute(
        """select max(coalesce(j.heartbeat_at, j.claimed_at) + k.stale_ttl) + interval '0.1 seconds'
           from mdm.aa_job j
           join mdm.aa_job_kind k using (job_kind)
           where j.id = any(%s)""",
        [job_ids],
    ).fetchone()
    assert row is not None
    at: datetime = row[0]
    return at
