"""explain_job: every reason why a job is not running."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from jobs import call, claim_one, enqueue, fail, make_job, make_tenant, refused, release

Connection = psycopg.Connection[Any]


def reasons(conn: Connection, job_id: int) -> dict[str, str]:
    """Return reason -> detail."""
    return {row["reason"]: row["detail"] for row in call(conn, "explain_job", job_id=job_id)}


def announce(conn: Connection, **parameters: Any) -> None:
    """Let a runner be alive."""
    call(conn, "announce_runner", **{"runner_id": "r1", "kinds": ["reindex"], **parameters})


def test_explain_job_names_the_place_in_the_queue(conn: Connection) -> None:
    announce(conn)
    first, second = enqueue(conn), enqueue(conn)
    better = enqueue(conn, priority=1)

    assert reasons(conn, better) == {"next in line": "no due job of its kind goes first"}
    assert reasons(conn, first) == {"behind others": "1 due job of its kind goes first"}
    assert reasons(conn, second) == {"behind others": "2 due jobs of its kind go first"}


def test_explain_job_counts_to_a_thousand(conn: Connection) -> None:
    announce(conn)
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts) select 'reindex', 1, 1 from generate_series(1, 1500)"
    )
    assert reasons(conn, enqueue(conn)) == {"behind others": "1000 or more due jobs of its kind go first"}


def test_explain_job_tells_when_it_is_due(conn: Connection) -> None:
    announce(conn)
    scheduled = enqueue(conn, available_at="2100-01-01T00:00:00Z")
    assert reasons(conn, scheduled) == {"not due": "scheduled"}

    retried = enqueue(conn)
    fail(conn, claim_one(conn), "no route to host")
    assert reasons(conn, retried) == {"not due": "waits after attempt 1 of 5: no route to host"}

    released = enqueue(conn)
    release(conn, claim_one(conn), retry_after="1 hour")
    [told] = call(conn, "explain_job", job_id=released)
    assert told["detail"].startswith("given back once")
    assert told["until"] is not None


def test_explain_job_tells_of_pause_and_missing_runners(conn: Connection) -> None:
    tenant = make_tenant(conn)
    waiting = enqueue(conn)
    call(conn, "pause_kind", job_kind="reindex", reason="index rebuild")
    assert set(reasons(conn, waiting)) == {"kind paused", "no live runner", "next in line"}
    assert reasons(conn, waiting)["kind paused"] == "index rebuild"

    call(conn, "resume_kind", job_kind="reindex")
    announce(conn, tenant_ids=[tenant])
    assert "other tenants than the platform" in reasons(conn, waiting)["no live runner"]
    assert set(reasons(conn, enqueue(conn, tenant_id=tenant))) == {"behind others"}


@pytest.mark.parametrize(
    ("state", "reason"), [("running", "running"), ("done", "finished"), ("failed", "stopped"), ("dlq", "dead")]
)
def test_explain_job_tells_of_every_other_state(conn: Connection, state: str, reason: str) -> None:
    row = make_job(conn, state)
    [(found, detail)] = reasons(conn, row["id"]).items()
    assert found == reason
    assert {"running": "w1", "done": "done at", "failed": "stopped at", "dlq": "1 of 5 attempts: broken"}[
        state
    ] in detail


def test_explain_job_of_nothing_is_mj002(conn: Connection) -> None:
    with refused("MJ002"):
        call(conn, "explain_job", job_id=0)
