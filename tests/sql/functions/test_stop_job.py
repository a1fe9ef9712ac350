"""stop_job (S5.4, D10). States are tested in test_states."""

from __future__ import annotations

from uuid import uuid4

import pytest

from jobs import Connection, age, audit, call, claim, job, make_job, make_tenant, recover, violations


def stop(conn: Connection, job_id: int, **parameters: object) -> None:
    assert call(conn, "stop_job", job_id=job_id, **parameters) == [{"stop_job": "stopped"}]


@pytest.mark.parametrize("state", ["pending", "running", "dlq"])
def test_stopped_job_is_tried_no_more_until_replayed(conn: Connection, state: str) -> None:
    job_id = make_job(conn, state)["id"]
    stop(conn, job_id)
    age(conn, job_id)
    assert (claim(conn), recover(conn)) == ([], {})
    call(conn, "replay_job", job_id=job_id)
    assert claim(conn)[0]["id"] == job_id
    assert violations(conn) == {}


def test_stop_is_audited_with_actor_and_reason(conn: Connection) -> None:
    tenant_id, actor = make_tenant(conn), uuid4()
    job_id = make_job(conn, "dlq", tenant_id=tenant_id)["id"]
    stop(conn, job_id, reason="never again", actor_principal_id=actor)
    row = audit(conn, job_id)[-1]
    assert (row["action"], row["actor_principal_id"], row["tenant_id"]) == ("job_stop", actor, tenant_id)
    assert row["payload"] == {
        "job_kind": "reindex",
        "status": "dlq",
        "last_error": "broken",
        "reason": "never again",
    }


@pytest.mark.parametrize(
    ("reason", "stored"),
    [(None, "broken"), ("", "stopped: "), ("why", "stopped: why"), ("x" * 9000, "stopped: " + "x" * 8183)],
)
def test_stop_notes_its_reason_and_else_keeps_the_error(conn: Connection, reason: str | None, stored: str) -> None:
    job_id = make_job(conn, "dlq")["id"]
    stop(conn, job_id, reason=reason)
    assert job(conn, job_id)["last_error"] == stored
