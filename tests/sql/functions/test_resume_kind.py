"""resume_kind (design 3, D15): ends a pause, by whatever it was made."""

from __future__ import annotations

from uuid import uuid4

import pytest

from jobs import Connection, audit, call, claim, enqueue, ids, refused, rows


@pytest.mark.parametrize("until", [None, "2090-01-01 00:00+00"])
def test_resumed_kind_is_claimed_again_in_order(conn: Connection, until: str | None) -> None:
    call(conn, "pause_kind", job_kind="reindex", until=until, reason="why")
    made = [enqueue(conn) for _ in range(3)]
    assert claim(conn, limit=5) == []
    call(conn, "resume_kind", job_kind="reindex")
    assert ids(claim(conn, limit=5)) == made
    [kind] = rows(conn, "select paused_until, paused_reason from mdm.aa_job_kind where job_kind = 'reindex'")
    assert kind == {"paused_until": None, "paused_reason": None}


def test_resume_leaves_other_kinds_paused(conn: Connection) -> None:
    enqueue(conn, "index_sync")
    for kind in ("reindex", "index_sync"):
        call(conn, "pause_kind", job_kind=kind)
    call(conn, "resume_kind", job_kind="reindex")
    assert claim(conn, "index_sync") == []


def test_resume_of_an_open_kind_is_no_error(conn: Connection) -> None:
    job_id = enqueue(conn)
    call(conn, "resume_kind", job_kind="reindex")
    assert ids(claim(conn)) == [job_id]


def test_d15_resume_is_audited(conn: Connection) -> None:
    actor = uuid4()
    call(conn, "resume_kind", job_kind="reindex", actor_principal_id=actor)
    [row] = audit(conn, "reindex")
    assert (row["action"], row["object_type"], row["actor_principal_id"]) == ("job_kind_changed", "job_kind", actor)
    assert row["payload"] == {"paused_until": "resumed"}


@pytest.mark.parametrize("name", ["nope", None])
def test_d14_resume_of_an_unknown_kind_is_refused(conn: Connection, name: str | None) -> None:
    with refused("MJ003", match=f"unknown job kind {'NULL' if name is None else repr(name)}"):
        call(conn, "resume_kind", job_kind=name)
