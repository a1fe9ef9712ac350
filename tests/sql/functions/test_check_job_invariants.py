"""check_job_invariants: finds each violation that is planted, and nothing in what the functions store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from invariants import PLANTED, allow_impossible_rows, plant
from jobs import (
    Connection,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    make_due,
    make_job,
    make_kind,
    rows,
    violations,
)


def test_check_job_invariants_names_all_of_them(conn: Connection) -> None:
    answer = rows(conn, "select * from mdm.check_job_invariants()")
    assert [row["name"] for row in answer] == sorted(PLANTED)
    assert {(row["violations"], row["sample"]) for row in answer} == {(0, None)}


@pytest.mark.parametrize("name", PLANTED)
def test_check_job_invariants_finds_what_is_planted(conn: Connection, name: str) -> None:
    with conn.transaction(force_rollback=True):
        allow_impossible_rows(conn)
        assert violations(conn) == {}
        planted = plant(conn, name)
        [row] = rows(conn, "select * from mdm.check_job_invariants() where violations > 0")
        assert row == {"name": name, "violations": 1, "sample": str(planted)}


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


def broken(conn: Connection, **bounds: Any) -> dict[str, int]:
    return {row["name"]: row["violations"] for row in call(conn, "check_job_invariants", **bounds) if row["violations"]}


@pytest.mark.parametrize("action", ["job_done", "job_dlq", "job_stop"])
def test_check_job_invariants_since_a_time_looks_at_what_ended_after_it(conn: Connection, action: str) -> None:
    state = {"job_done": "done", "job_dlq": "dlq", "job_stop": "failed"}[action]
    ended = make_job(conn, state)["completed_at"]
    make_job(conn, state)
    conn.execute("delete from mdm.aa_audit_log where action = %s", (action,))
    assert broken(conn) == {"audit_row_missing": 2}
    assert broken(conn, since=ended - timedelta(microseconds=1)) == {"audit_row_missing": 2}
    assert broken(conn, since=ended) == {"audit_row_missing": 1}
    assert broken(conn, since="infinity") == {}


def test_check_job_invariants_since_a_time_sees_the_audit_of_what_ended_at_it(conn: Connection) -> None:
    made = [make_job(conn, state)["completed_at"] for state in ("done", "dlq", "failed")]
    for ended in made:
        assert broken(conn, since=ended) == broken(conn, since=ended - timedelta(microseconds=1)) == {}


def test_check_job_invariants_from_id_to_id_looks_at_these_rows(conn: Connection) -> None:
    made = [enqueue(conn) for _ in range(5)]
    conn.execute("update mdm.aa_job set attempts = max_attempts")
    found = [{"from": made[1], "to": made[3]}, {"from": made[4]}, {"to": made[0]}, {"from": made[4] + 1}]
    assert [broken(conn, **bounds).get("pending_without_attempts_left", 0) for bounds in found] == [3, 1, 1, 0]


def test_check_job_invariants_from_an_audit_row_on(conn: Connection) -> None:
    first, second = (make_job(conn, "done") for _ in range(2))
    [entry] = [row["id"] for row in audit(conn, second["id"]) if row["action"] == "job_done"]
    assert broken(conn, since=first["completed_at"], entry=entry) == {}
    assert broken(conn, entry=entry) == {"audit_row_missing": 1}
    conn.execute(PLANTED["done_twice"][1])
    assert broken(conn, since=first["completed_at"], entry=entry) == {"done_twice": 1}
    assert broken(conn, since=datetime.now(UTC) + timedelta(hours=1), entry=entry) == {}
