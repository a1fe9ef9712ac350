"""find_entries: the audit rows of a job, searched in its time; what they look like is tested with v_job_history."""

from __future__ import annotations

import pytest

from jobs import Connection, call, make_job


def entries(conn: Connection, job_id: int | None) -> list[str]:
    return sorted(row["action"] for row in call(conn, "find_entries", job_id=job_id))


def shift(conn: Connection, table: str, columns: str, by: str) -> None:
    changes = ", ".join(f"{column} = {column} + interval '{by}'" for column in columns.split())
    conn.execute(f"update mdm.{table} set {changes}".encode())


def test_find_entries_gives_those_of_the_job(conn: Connection) -> None:
    done, dead = (make_job(conn, state)["id"] for state in ("done", "dlq"))
    conn.execute(
        "insert into mdm.aa_audit_log (action, object_type, object_id) values ('job_done', 'other', %s)", (dead,)
    )
    assert entries(conn, done) == ["job_done", "job_enqueued"]
    assert entries(conn, dead) == ["job_dlq", "job_enqueued"]
    assert entries(conn, dead + 1) == []
    assert entries(conn, None) == []


def test_find_entries_of_a_job_that_is_not_at_its_end_reach_to_now(conn: Connection) -> None:
    job_id = make_job(conn, "dlq")["id"]
    shift(conn, "aa_audit_log", "occurred_at", "-10 days")
    shift(conn, "aa_job", "created_at completed_at", "-10 days")
    call(conn, "replay_job", job_id=job_id)
    assert entries(conn, job_id) == ["job_dlq", "job_enqueued", "job_replay"]


def test_find_entries_are_searched_in_the_time_of_the_job(conn: Connection) -> None:
    """An entry that nothing of ours can have written then: no search over the whole audit finds it."""
    job_id = make_job(conn, "done")["id"]
    conn.execute("update mdm.aa_audit_log set occurred_at = occurred_at + interval '1 hour' where action = 'job_done'")
    assert entries(conn, job_id) == ["job_enqueued"]


def test_find_entries_bears_a_clock_that_was_set_back(conn: Connection) -> None:
    job_id = make_job(conn, "done")["id"]
    shift(conn, "aa_job", "completed_at", "-3 hours")
    conn.execute("update mdm.aa_audit_log set occurred_at = occurred_at - interval '3 hours' where action = 'job_done'")
    assert entries(conn, job_id) == ["job_done", "job_enqueued"]


@pytest.mark.parametrize("index", [None, "(object_id)", "(occurred_at)"])
def test_find_entries_takes_the_index_that_is_there(conn: Connection, index: str | None) -> None:
    job_id = make_job(conn, "done")["id"]
    with conn.transaction(force_rollback=True):
        conn.execute("drop index mdm.ix_aa_audit_log_occurred_at")
        if index is not None:
            conn.execute(f"create index on mdm.aa_audit_log {index}".encode())
        assert entries(conn, job_id) == ["job_done", "job_enqueued"]
