"""The database half of the kinds index_sync and gin_backfill (S2.7, S2.8), and the session that runs their DDL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, NamedTuple

import psycopg

from jobrunner.db.call import Call, nothing

CANCEL_SECONDS: Final = 5.0


class IndexStep(NamedTuple):
    """A statement to run alone, in autocommit; a build may take hours and can be ended early."""

    statement: str
    is_build: bool


def sync_index(*, job_id: int, lease_no: int) -> Call[list[IndexStep]]:
    """Give the statements that are due next; none = all is as wanted and recorded. MJ001, MJ005, 55P03."""
    return Call(
        "select s.statement, s.is_build from mdm.sync_index(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s) s",
        lambda rows: [IndexStep._make(row) for row in rows],
        {"job_id": job_id, "lease_no": lease_no},
    )


def wants_index(*, job_id: int, lease_no: int, statement: str) -> Call[bool]:
    """Tell whether a build under way is still wanted; MJ001, MJ005."""
    return Call(
        """select mdm.wants_index(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s,
             p_statement => %(statement)s)""",
        lambda rows: bool(rows[0][0]),
        {"job_id": job_id, "lease_no": lease_no, "statement": statement},
    )


def fail_index(*, job_id: int, lease_no: int, error: str) -> Call[bool]:
    """Write why a build failed; True when that was the last attempt. MJ001, MJ005, 55P03."""
    return Call(
        "select mdm.fail_index(p_job_id => %(job_id)s, p_lease_no => %(lease_no)s, p_error => %(error)s)",
        lambda rows: bool(rows[0][0]),
        {"job_id": job_id, "lease_no": lease_no, "error": error},
    )


def lock_index_builds() -> Call[bool]:
    """Take the lock of index builds for the session; False when another session has it. MJ007."""
    return Call("select mdm.lock_index_builds()", lambda rows: bool(rows[0][0]))


def unlock_index_builds() -> Call[None]:
    """Let go of the lock at once: after a close the server takes a moment to notice, and the next build would wait."""
    return Call("select pg_advisory_unlock_all()", nothing)


def limit_session(*, lock_timeout_seconds: float, statement_timeout_seconds: float) -> Call[None]:
    """Set the session's own limits, whatever the role's are (B104), and how it reads string constants."""
    return Call(
        """select set_config('lock_timeout', %(lock)s, false), set_config('statement_timeout', %(statement)s, false),
             set_config('standard_conforming_strings', 'on', false)""",
        nothing,
        {"lock": _milliseconds(lock_timeout_seconds), "statement": _milliseconds(statement_timeout_seconds)},
    )


def run_watched(conn: psycopg.Connection[Any], statement: str, watch: Callable[[], None], every_seconds: float) -> None:
    """Run one statement, and call `watch` while it runs; what that raises ends the statement, then gets out."""
    with ThreadPoolExecutor(1, thread_name_prefix="ddl") as pool:
        future = pool.submit(conn.execute, statement.encode())
        try:
            while not wait([future], every_seconds).done:
                watch()
        except BaseException:
            _cancel(conn, future)
            raise
        future.result()


def _cancel(conn: psycopg.Connection[Any], future: Future[Any]) -> None:
    """Ask the server to stop until it has; a server that is gone is given up by the keepalives of the connection."""
    while not future.done():
        with suppress(psycopg.Error):
            conn.cancel_safe(timeout=CANCEL_SECONDS)
        wait([future], CANCEL_SECONDS)


def _milliseconds(seconds: float) -> str:
    return str(max(1, min(int(seconds * 1000), 2_147_483_647)))
