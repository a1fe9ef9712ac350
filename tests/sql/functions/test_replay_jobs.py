"""replay_jobs: many dead jobs by filter, dry run by default (S9.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from jobs import actions, age, call, enqueue, job, make_job, make_tenant, refused, snapshot, status, statuses

Connection = psycopg.Connection[Any]


def outcomes(conn: Connection, job_filter: Any, function: str = "replay_jobs", **parameters: Any) -> dict[int, str]:
    """Call the bulk function and return id -> outcome."""
    found = call(conn, function, filter=Jsonb(job_filter), **parameters)
    return {row["job_id"]: row["outcome"] for row in found}


def test_replay_jobs_is_a_dry_run_unless_told_otherwise(conn: Connection) -> None:
    dead = [make_job(conn, "dlq")["id"] for _ in range(3)]
    before = snapshot(conn)

    for dry in ({}, {"dry_run": None}, {"dry_run": True}):
        assert outcomes(conn, {"all": True}, **dry) == dict.fromkeys(dead, "would_replay")
    assert snapshot(conn) == before

    assert outcomes(conn, {"all": True}, dry_run=False, reason="fixed") == dict.fromkeys(dead, "replayed")
    assert statuses(conn) == {"pending": 3}
    assert all(job(conn, each)["attempts"] == 0 and actions(conn, each)[-1] == "job_replay" for each in dead)


def test_replay_jobs_takes_dlq_alone(conn: Connection) -> None:
    """A stopped job was stopped by somebody: it is replayed by name only (S5.4)."""
    others = {state: make_job(conn, state)["id"] for state in ("failed", "done")}
    dead = make_job(conn, "dlq")["id"]

    assert outcomes(conn, {"all": True}, dry_run=False) == {dead: "replayed"}
    assert {state: status(conn, each) for state, each in others.items()} == {"failed": "failed", "done": "done"}


def test_replay_jobs_applies_every_filter(conn: Connection) -> None:
    tenant = make_tenant(conn)
    plain = make_job(conn, "dlq")["id"]
    bound = make_job(conn, "dlq", tenant_id=tenant)["id"]
    other = make_job(conn, "dlq", "index_sync")["id"]
    conn.execute("update mdm.aa_job set last_error = 'timeout at host' where id = %s", (other,))
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01Z' where id = %s", (plain,))

    assert set(outcomes(conn, {"job_kind": "reindex"})) == {plain, bound}
    assert set(outcomes(conn, {"tenant_id": str(tenant)})) == {bound}
    assert set(outcomes(conn, {"tenant_id": None})) == {plain, other}
    assert set(outcomes(conn, {"last_error": "timeout"})) == {other}
    assert set(outcomes(conn, {"completed_before": "2021-01-01T00:00:00Z"})) == {plain}
    assert set(outcomes(conn, {"completed_after": "2021-01-01T00:00:00Z", "job_kind": "reindex"})) == {bound}
    assert len(outcomes(conn, {"all": True}, limit=2)) == 2


@pytest.mark.parametrize(
    ("job_filter", "parameters", "sqlstate", "message"),
    [
        ({}, {}, "MJ006", "empty"),
        ({"all": False}, {}, "MJ006", "empty"),
        ({"last_error": ""}, {}, "MJ006", "empty"),
        ({"kind": "reindex"}, {}, "MJ005", "'kind'"),
        ([], {}, "MJ005", "not a JSON object"),
        ({"tenant_id": "x"}, {}, "MJ005", "wrong type"),
        ({"completed_before": "yesterdayish"}, {}, "MJ005", "wrong type"),
        ({"all": True}, {"limit": 0}, "MJ005", "p_limit"),
        ({"all": True}, {"limit": 10_001}, "MJ005", "p_limit"),
    ],
)
@pytest.mark.parametrize("function", ["replay_jobs", "discard_jobs"])
def test_bulk_functions_refuse_what_is_not_clear(
    conn: Connection, function: str, job_filter: Any, parameters: dict[str, Any], sqlstate: str, message: str
) -> None:
    with refused(sqlstate, match=message):
        outcomes(conn, job_filter, function, **parameters)


def test_b34_replay_jobs_reports_what_is_superseded(conn: Connection) -> None:
    """Five dead jobs, two of them generations of one key, one whose key is in use: three come back."""
    plain = [make_job(conn, "dlq")["id"] for _ in range(2)]
    older = make_job(conn, "dlq", idempotency_key="twins")["id"]
    newer = make_job(conn, "dlq", idempotency_key="twins", on_conflict="update")["id"]
    in_use = make_job(conn, "dlq", idempotency_key="used")["id"]
    successor = enqueue(conn, idempotency_key="used", on_conflict="update")

    found = outcomes(conn, {"all": True}, dry_run=False)

    assert found == {**dict.fromkeys([*plain, newer], "replayed"), **dict.fromkeys([older, in_use], "superseded")}
    assert status(conn, older) == status(conn, in_use) == "dlq"
    assert status(conn, successor) == "pending"


def test_replay_jobs_passes_over_what_another_session_holds(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    held, free = (make_job(conn, "dlq")["id"] for _ in range(2))
    other = connect(autocommit=False)
    other.execute("select from mdm.aa_job where id = %s for update", (held,))

    assert outcomes(conn, {"all": True}, dry_run=False) == {free: "replayed"}


def test_discard_jobs_deletes_and_leaves_snapshots(conn: Connection) -> None:
    call(conn, "set_job_kind", job_kind="reindex", settings=Jsonb({"redact": ["secret"]}))
    dead = make_job(conn, "dlq", payload={"a": 1, "secret": "x"})["id"]
    other = make_job(conn, "dlq", "index_sync")["id"]

    assert outcomes(conn, {"job_kind": "reindex"}, "discard_jobs") == {dead: "would_discard"}
    assert status(conn, dead) == "dlq"
    assert outcomes(conn, {"job_kind": "reindex"}, "discard_jobs", dry_run=False, reason="old") == {dead: "discarded"}

    assert status(conn, dead) == "gone"
    assert status(conn, other) == "dlq"
    [*_, last] = conn.execute(
        "select action, payload from mdm.aa_audit_log where object_id = %s order by id", (str(dead),)
    )
    assert last[0] == "job_discard"
    assert last[1]["payload"] == {"a": 1, "secret": "[redacted]"}
    assert last[1]["reason"] == "old"


def test_replay_jobs_lets_a_stale_claim_alone(conn: Connection) -> None:
    running = make_job(conn, "running")["id"]
    age(conn, running)
    assert outcomes(conn, {"all": True}, dry_run=False) == {}
