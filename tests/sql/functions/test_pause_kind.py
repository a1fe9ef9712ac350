"""pause_kind (design 3, D15): a paused kind is no error, claim gives nothing of it, enqueue works."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from jobs import Connection, audit, call, claim, enqueue, fail, finish, ids, make_job, recover, refused, rows


def paused(conn: Connection) -> Any:
    # as text: infinity is no datetime of Python's
    return rows(conn, "select paused_until::text, paused_reason from mdm.aa_job_kind where job_kind = 'reindex'")[
        0
    ].values()


def test_pause_is_until_resumed(conn: Connection) -> None:
    job_id = enqueue(conn)
    call(conn, "pause_kind", job_kind="reindex", reason="provider down")
    assert [*paused(conn)] == ["infinity", "provider down"]
    assert claim(conn) == []
    call(conn, "resume_kind", job_kind="reindex")
    assert [*paused(conn)] == [None, None]
    assert ids(claim(conn)) == [job_id]


def test_pause_ends_by_itself(conn: Connection) -> None:
    job_id = enqueue(conn)
    call(conn, "pause_kind", job_kind="reindex", until=datetime.now(UTC) + timedelta(hours=1))
    assert claim(conn) == []
    call(conn, "pause_kind", job_kind="reindex", until=datetime.now(UTC) - timedelta(hours=1))
    assert ids(claim(conn)) == [job_id]


def test_d13_null_until_is_until_resumed(conn: Connection) -> None:
    call(conn, "pause_kind", job_kind="reindex", until=None, reason=None, actor_principal_id=None)
    assert [*paused(conn)] == ["infinity", None]


def test_pause_leaves_running_jobs_alone(conn: Connection) -> None:
    first, second = make_job(conn, "running"), make_job(conn, "running")
    call(conn, "pause_kind", job_kind="reindex")
    finish(conn, first)
    fail(conn, second)
    assert recover(conn) == {}


def test_d15_pause_is_audited(conn: Connection) -> None:
    actor = uuid4()
    call(conn, "pause_kind", job_kind="reindex", reason="why", actor_principal_id=actor)
    [row] = audit(conn, "reindex")
    assert (row["action"], row["object_type"], row["tenant_id"]) == ("job_kind_changed", "job_kind", None)
    assert (row["actor_principal_id"], row["session_role"]) == (actor, conn.info.user)
    assert row["payload"] == {"paused_until": "infinity", "reason": "why"}


@pytest.mark.parametrize("name", ["nope", None])
def test_d14_pause_of_an_unknown_kind_is_refused(conn: Connection, name: str | None) -> None:
    with refused("MJ003", match=f"unknown job kind {'NULL' if name is None else repr(name)}"):
        call(conn, "pause_kind", job_kind=name)
    assert audit(conn, "nope") == []
