"""discard_job (S9.3, D12, D22). States are tested in test_states."""

from __future__ import annotations

from uuid import uuid4

import pytest

from jobs import Connection, audit, call, make_job, make_kind, make_tenant, refused, stored


@pytest.mark.parametrize("state", ["pending", "failed", "dlq"])
def test_discard_leaves_a_snapshot(conn: Connection, state: str) -> None:
    tenant_id, actor = make_tenant(conn), uuid4()
    before = make_job(conn, state, payload={"n": None, "a": [1]}, tenant_id=tenant_id, idempotency_key="k")
    call(conn, "discard_job", job_id=before["id"], reason="wrong", actor_principal_id=actor)
    assert stored(conn, before["id"]) is None
    row = audit(conn, before["id"])[-1]
    assert (row["action"], row["actor_principal_id"], row["tenant_id"]) == ("job_discard", actor, tenant_id)
    created_at = row["payload"].pop("created_at")
    assert created_at[:10] == before["created_at"].isoformat()[:10]
    expected = {
        "job_kind": "reindex",
        "status": state,
        "attempts": before["attempts"],
        "last_error": before["last_error"],
        "idempotency_key": "k",
        "reason": "wrong",
        "payload": {"n": None, "a": [1]},
    }
    assert row["payload"] == {name: kept for name, kept in expected.items() if kept is not None}


def test_snapshot_hides_what_the_kind_lists(conn: Connection) -> None:
    make_kind(conn, "reindex", redact=["token", "body", "absent"])
    before = make_job(conn, "dlq", payload={"token": {"deep": 1}, "body": None, "to": "x"})
    call(conn, "discard_job", job_id=before["id"])
    payload = audit(conn, before["id"])[-1]["payload"]["payload"]
    assert payload == {"token": "[redacted]", "body": "[redacted]", "to": "x"}


def test_second_discard_finds_no_job(conn: Connection) -> None:
    job_id = make_job(conn, "dlq")["id"]
    call(conn, "discard_job", job_id=job_id)
    with refused("MJ002", match=f"no job {job_id}"):
        call(conn, "discard_job", job_id=job_id)
