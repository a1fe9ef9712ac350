"""replay_job (S9.2, D2, D6). States and superseding are tested in test_states."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from jobs import (
    Connection,
    actions,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    job,
    make_job,
    make_tenant,
    refused,
    value,
    violations,
)


def replay(conn: Connection, job_id: int, **parameters: object) -> None:
    assert call(conn, "replay_job", job_id=job_id, **parameters) == [{"replay_job": "replayed"}]


@pytest.mark.parametrize("state", ["dlq", "failed"])
def test_replayed_job_is_due_now_with_all_its_attempts(conn: Connection, state: str) -> None:
    job_id = make_job(conn, state, max_attempts=1)["id"]
    conn.execute("update mdm.aa_job set available_at = '2090-01-01'")
    replay(conn, job_id)
    assert job(conn, job_id)["available_at"] <= value(conn, "select clock_timestamp()")
    claimed = claim_one(conn)
    assert (claimed["id"], claimed["attempts"]) == (job_id, 1)
    finish(conn, claimed)
    assert job(conn, job_id)["last_error"] is None
    assert violations(conn) == {}


def test_replay_keeps_the_error_until_the_next_end(conn: Connection) -> None:
    job_id = make_job(conn, "dlq")["id"]
    replay(conn, job_id)
    assert job(conn, job_id)["last_error"] == "broken"


def test_replay_is_audited_with_actor_reason_and_error(conn: Connection) -> None:
    tenant_id, actor = make_tenant(conn), uuid4()
    job_id = make_job(conn, "dlq", tenant_id=tenant_id)["id"]
    replay(conn, job_id, reason="fixed", actor_principal_id=actor)
    row = audit(conn, job_id)[-1]
    assert (row["action"], row["actor_principal_id"], row["tenant_id"]) == ("job_replay", actor, tenant_id)
    assert row["payload"] == {"job_kind": "reindex", "status": "dlq", "last_error": "broken", "reason": "fixed"}


def test_job_can_die_and_come_back_again(conn: Connection) -> None:
    job_id = make_job(conn, "dlq")["id"]
    for _ in range(3):
        replay(conn, job_id)
        fail(conn, claim_one(conn), retryable=False)
    assert actions(conn, job_id) == ["job_enqueued", "job_dlq", *["job_replay", "job_dlq"] * 3]


def test_d2_lease_of_before_the_replay_is_lost_also_when_it_runs_again(conn: Connection) -> None:
    old = make_job(conn, "dlq")
    replay(conn, old["id"])
    claim_one(conn)
    with refused("MJ001", detail="claimed again"):
        finish(conn, old)


def test_d6_newest_generation_is_replayed(conn: Connection) -> None:
    make_job(conn, "done", idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update")
    fail(conn, claim_one(conn), retryable=False)
    replay(conn, newer)
    assert claim(conn)[0]["id"] == newer


def test_d6_older_generation_comes_back_when_the_newer_is_gone(conn: Connection) -> None:
    older = make_job(conn, "dlq", idempotency_key="k")["id"]
    newer = enqueue(conn, idempotency_key="k", on_conflict="update", available_at=datetime(2090, 1, 1, tzinfo=UTC))
    call(conn, "discard_job", job_id=newer)
    replay(conn, older)
