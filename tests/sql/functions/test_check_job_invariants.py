"""check_job_invariants: finds each violation that is planted, and nothing in what the functions store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs import Connection, call, claim, claim_one, enqueue, fail, make_due, make_job, make_kind, rows, violations

NAMES = {
    "running_without_lease",
    "pending_but_claimed",
    "completed_at_wrong",
    "pending_without_attempts_left",
    "more_attempts_than_allowed",
    "unregistered_kind",
    "audit_row_missing",
    "done_twice",
}
# name -> the state to start from, and what to do to it
PLANTED = {
    "running_without_lease": ("running", "update mdm.aa_job set lease_no = null"),
    "pending_but_claimed": ("pending", "update mdm.aa_job set heartbeat_at = now()"),
    "completed_at_wrong": ("running", "update mdm.aa_job set completed_at = now()"),
    "pending_without_attempts_left": ("pending", "update mdm.aa_job set attempts = max_attempts"),
    "more_attempts_than_allowed": ("running", "update mdm.aa_job set attempts = max_attempts + 1"),
    "unregistered_kind": ("pending", "update mdm.aa_job set job_kind = 'nope'"),
    "audit_row_missing": ("done", "delete from mdm.aa_audit_log where action = 'job_done'"),
    "done_twice": (
        "done",
        "insert into mdm.aa_audit_log (action, object_type, object_id)"
        " select action, object_type, object_id from mdm.aa_audit_log where action = 'job_done'",
    ),
}


def test_check_job_invariants_names_all_of_them(conn: Connection) -> None:
    answer = rows(conn, "select * from mdm.check_job_invariants()")
    assert [row["name"] for row in answer] == sorted(NAMES)
    assert {(row["violations"], row["sample"]) for row in answer} == {(0, None)}
    assert set(PLANTED) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_check_job_invariants_finds_what_is_planted(
    fresh_dsn: str, connect: Callable[..., Connection], name: str
) -> None:
    conn = connect(dsn=fresh_dsn)
    state, plant = PLANTED[name]
    planted = make_job(conn, state)
    for constraint in ("running", "pending", "completed_at"):
        conn.execute(f"alter table mdm.aa_job drop constraint aa_job_{constraint}_check".encode())
    assert violations(conn) == {}
    conn.execute(plant.encode())
    [row] = rows(conn, "select * from mdm.check_job_invariants() where violations > 0")
    assert row == {"name": name, "violations": 1, "sample": str(planted["id"])}


@pytest.mark.parametrize("state", ["dlq", "failed"])
def test_check_job_invariants_misses_the_audit_of_a_death_and_a_stop(conn: Connection, state: str) -> None:
    make_job(conn, state)
    assert violations(conn) == {}
    conn.execute("delete from mdm.aa_audit_log where action in ('job_dlq', 'job_stop')")
    assert violations(conn) == {"audit_row_missing": 1}


def test_check_job_invariants_raises_no_alarm_when_settings_change(conn: Connection) -> None:
    """Retries keep the time they were given, and jobs that left no audit row were right at their time."""
    make_kind(conn, "quiet", audit_level="exceptions", max_delay="6 hours", base_delay="6 hours")
    make_job(conn, "done", "quiet")
    enqueue(conn, "quiet")
    fail(conn, claim_one(conn, "quiet"))
    make_kind(conn, "quiet", audit_level="full", max_delay="1 minute", base_delay="1 minute")
    assert violations(conn) == {}
    make_job(conn, "done", "quiet")
    assert violations(conn) == {}


def test_check_job_invariants_samples_ten_ids(conn: Connection) -> None:
    made = [enqueue(conn) for _ in range(12)]
    conn.execute("update mdm.aa_job set job_kind = 'nope'")
    [row] = rows(conn, "select * from mdm.check_job_invariants() where violations > 0")
    assert row["violations"] == 12
    assert row["sample"] == ", ".join(map(str, made[:10]))


def test_invariants_hold_after_a_life_of_many_turns(conn: Connection) -> None:
    for number in range(20):
        enqueue(conn, idempotency_key=f"k{number % 6}", on_conflict="update", max_attempts=2)
        for claimed in claim(conn, limit=2):
            if number % 3:
                fail(conn, claimed, retry_after="0")
            else:
                call(conn, "stop_job", job_id=claimed["id"])
                call(conn, "replay_job", job_id=claimed["id"])
            make_due(conn, claimed["id"])
    assert violations(conn) == {}
