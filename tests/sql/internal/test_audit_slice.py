"""_audit_slice: which ended jobs and which audit rows can be checked against each other quickly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs import Connection, make_job, make_kind, rows, value


def audit_slice(conn: Connection, jobs: int = 10_000, entries: int = 50_000) -> tuple[float | None, int]:
    """Ask for the last hour; how many seconds ago it begins (None = never), and how far its audit ids go back."""
    query = """
        select extract(epoch from clock_timestamp() - nullif(s.o_since, 'infinity')) as seconds,
          (select max(a.id) from mdm.aa_audit_log a) - s.o_entry as ids
        from mdm._audit_slice(%s, %s, %s) s
    """
    [found] = rows(conn, query, datetime.now(UTC) - timedelta(hours=1), jobs, entries)
    return found["seconds"], found["ids"]


def write_audit(conn: Connection, rows: int, seconds_ago: float, object_type: str = "job") -> None:
    conn.execute(
        "insert into mdm.aa_audit_log (action, object_type, occurred_at)"
        " select 'job_enqueued', %s, clock_timestamp() - make_interval(secs => %s) from generate_series(1, %s)",
        (object_type, seconds_ago, rows),
    )


def seconds_of(conn: Connection, **bounds: int) -> float:
    seconds, _ = audit_slice(conn, **bounds)
    assert seconds is not None
    return float(seconds)


def test_audit_slice_is_what_was_asked_for_where_all_audit_rows_are_in_it(conn: Connection) -> None:
    write_audit(conn, 10, 1800)
    assert 3600 <= seconds_of(conn, entries=10) < 3660
    assert audit_slice(conn, entries=10)[1] == 9


def test_audit_slice_begins_five_seconds_after_its_first_rows(conn: Connection) -> None:
    write_audit(conn, 10, 3000)
    write_audit(conn, 50, 4000, "other")
    write_audit(conn, 1000, 1800)
    write_audit(conn, 150, 60)
    assert 1794 < seconds_of(conn, entries=1200) < 1800, "other rows tell no time"
    assert 54 < seconds_of(conn, entries=140) < 60


def test_audit_slice_is_nothing_where_too_much_is_written(conn: Connection) -> None:
    write_audit(conn, 10, 1800)
    write_audit(conn, 10, 1800, "other")
    assert audit_slice(conn, entries=10)[0] is None, "nothing of ours in reach"
    write_audit(conn, 10, -60)
    assert seconds_of(conn, entries=10) < 0


@pytest.mark.parametrize("state", ["done", "dlq", "failed"])
def test_audit_slice_leaves_each_kind_its_newest_jobs(conn: Connection, state: str) -> None:
    kinds = value(conn, "select count(*) from mdm.aa_job_kind")
    for _ in range(5):
        make_job(conn, state)
    conn.execute(
        "update mdm.aa_job j set completed_at = clock_timestamp() - r.place * interval '1 minute'"
        " from (select id, row_number() over (order by id) as place from mdm.aa_job) r where r.id = j.id"
    )
    assert 180 <= seconds_of(conn, jobs=2 * kinds) < 200
    assert 3600 <= seconds_of(conn, jobs=5 * kinds) < 3660
    make_kind(conn, "reindex", audit_level="exceptions")
    assert (seconds_of(conn, jobs=2 * kinds) >= 3600) is (state == "done"), "these leave no audit row"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("create index on mdm.aa_audit_log (id)", True),
        ("alter table mdm.aa_audit_log add primary key (id, occurred_at)", True),
        ("create index on mdm.aa_audit_log (occurred_at, id)", False),
        ("create index on mdm.aa_audit_log (id) where object_id is not null", False),
        ("alter table mdm.aa_audit_log drop id, add id uuid primary key default gen_random_uuid()", False),
        ("alter table mdm.aa_audit_log drop id", False),
    ],
)
def test_audit_slice_needs_ids_with_an_index(conn: Connection, change: str, found: bool) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute("alter table mdm.aa_audit_log drop constraint aa_audit_log_pkey")
        conn.execute(change.encode())
        assert value(conn, "select o_since < 'infinity' from mdm._audit_slice(clock_timestamp(), 10, 10)") is found
