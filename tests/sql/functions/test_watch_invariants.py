"""watch_invariants: what the cleanup finds of broken invariants, slice by slice, and how little it does for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from invariants import PLANTED, allow_impossible_rows, plant
from jobs import (
    Connection,
    age,
    call,
    claim_one,
    enqueue,
    finish,
    make_job,
    make_kind,
    make_tenant,
    rows,
    status,
    value,
    violations,
)


def watch(conn: Connection) -> int:
    """Look at the next slice, as if the last look had been a minute ago; return the violations found."""
    conn.execute("update mdm.aa_job_upkeep set next_at = clock_timestamp() where part = 'invariants'")
    return int(value(conn, "select mdm.watch_invariants()"))


@contextmanager
def warnings(conn: Connection) -> Iterator[list[str]]:
    heard: list[str] = []

    def hear(notice: object) -> None:
        heard.append(str(getattr(notice, "message_primary", "")))

    conn.add_notice_handler(hear)
    try:
        yield heard
    finally:
        conn.remove_notice_handler(hear)


@pytest.mark.parametrize("name", PLANTED)
def test_cleanup_finds_each_broken_invariant(conn: Connection, name: str) -> None:
    with conn.transaction(force_rollback=True):
        allow_impossible_rows(conn)
        job_id = plant(conn, name)
        with warnings(conn) as heard:
            call(conn, "cleanup_step")
        assert heard == [f"invariant {name} does not hold: 1 jobs, {job_id}"]
        [line] = rows(conn, "select item, value, warning from mdm.v_job_health where subject = '(invariants)'")
        assert line["item"] == name
        assert line["value"].startswith("1 jobs, 00:00:0")
        assert line["value"].endswith(f" ago: {job_id}")
        assert "mdm.check_job_invariants()" in line["warning"]
        assert metric(conn) == 1


def metric(conn: Connection) -> float:
    return float(value(conn, "select value from mdm.job_metrics() where metric = 'mdm_jobs_violations'"))


def test_cleanup_of_a_life_of_many_turns_finds_nothing(conn: Connection) -> None:
    for state in ("running", "done", "dlq", "failed", "pending"):
        make_job(conn, state)
        with warnings(conn) as heard:
            conn.execute("call mdm.cleanup_jobs()")
            assert watch(conn) == 0
        assert heard == []
    assert rows(conn, "select from mdm.aa_job_violation") == []
    assert metric(conn) == 0


def test_a_broken_invariant_stops_no_recovery_and_nothing_is_repaired(conn: Connection) -> None:
    stale = make_job(conn, "running")["id"]
    age(conn, stale)
    broken = enqueue(conn, "index_sync")
    conn.execute("update mdm.aa_job set job_kind = 'nope' where id = %s", (broken,))
    conn.execute("call mdm.cleanup_jobs()")
    assert status(conn, stale) == "pending"
    assert violations(conn) == {"unregistered_kind": 1}


def test_a_find_is_shown_for_a_day(conn: Connection) -> None:
    enqueue(conn)
    conn.execute("update mdm.aa_job set job_kind = 'nope'")
    assert watch(conn) == 1
    conn.execute("update mdm.aa_job_violation set found_at = found_at - interval '25 hours'")
    assert rows(conn, "select from mdm.v_job_health where subject = '(invariants)'") == []
    assert metric(conn) == 0
    assert watch(conn) == 1
    assert metric(conn) == 1


def test_watch_looks_once_a_minute(conn: Connection) -> None:
    enqueue(conn)
    conn.execute("update mdm.aa_job set job_kind = 'nope'")
    assert [value(conn, "select mdm.watch_invariants()") for _ in range(3)] == [1, 0, 0]
    assert value(
        conn,
        "select next_at - last_at between '1 minute' and '1 hour' from mdm.aa_job_upkeep where part = 'invariants'",
    )


def test_watch_looks_again_when_the_clock_was_set_back(conn: Connection) -> None:
    assert watch(conn) == 0
    make_job(conn, "done")
    conn.execute("delete from mdm.aa_audit_log")
    conn.execute(
        "update mdm.aa_job_upkeep set last_at = last_at + interval '9 h', next_at = last_at + interval '9 h 1 m'"
    )
    assert value(conn, "select mdm.watch_invariants()") == 1


def test_watch_goes_through_the_table_slice_by_slice(conn: Connection) -> None:
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, attempts, max_attempts)"
        " select 'reindex', 1, g / 20001, 1 from generate_series(1, 20001) g"
    )
    assert violations(conn) == {"pending_without_attempts_left": 1}
    assert [watch(conn) for _ in range(6)] == [0, 0, 1] * 2


def test_watch_reads_the_audit_since_the_last_time_only(conn: Connection) -> None:
    old = make_job(conn, "done")["id"]
    conn.execute("delete from mdm.aa_audit_log")
    assert watch(conn) == 1
    conn.execute(
        "update mdm.aa_job set completed_at = completed_at - interval '2 minutes' where id = %s",
        (old,),
    )
    assert watch(conn) == 0
    assert violations(conn) == {"audit_row_missing": 1}
    make_job(conn, "done")
    conn.execute("delete from mdm.aa_audit_log")
    assert watch(conn) == 1


def test_watch_sees_what_commits_later_than_it_says(conn: Connection, connect: Callable[..., Connection]) -> None:
    other = connect(autocommit=False)
    enqueue(conn)
    finish(other, claim_one(conn))
    other.execute("delete from mdm.aa_audit_log where action = 'job_done'")
    assert watch(conn) == 0
    other.commit()
    assert watch(conn) == 1


def test_watch_raises_no_alarm_while_a_job_ends(conn: Connection, connect: Callable[..., Connection]) -> None:
    other = connect(autocommit=False)
    enqueue(conn)
    finish(other, claim_one(conn))
    assert watch(conn) == 0
    other.commit()
    assert watch(conn) == 0


def test_watch_raises_no_alarm_when_settings_change(conn: Connection) -> None:
    make_kind(conn, "quiet", audit_level="exceptions")
    make_job(conn, "done", "quiet")
    assert watch(conn) == 0
    make_kind(conn, "quiet", audit_level="full")
    assert watch(conn) == 0
    make_job(conn, "done", "quiet")
    assert watch(conn) == 0


def test_two_watches_at_once_look_once_and_wait_for_nobody(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    enqueue(conn)
    conn.execute("update mdm.aa_job set job_kind = 'nope'")
    other = connect(autocommit=False)
    assert value(other, "select mdm.watch_invariants()") == 1
    conn.execute("set statement_timeout = '10s'")
    assert value(conn, "select mdm.watch_invariants()") == 0
    other.commit()
    assert value(conn, "select count(*) from mdm.aa_job_violation") == 1


def test_watch_of_a_bound_login_leaves_it_to_others(conn: Connection, connect: Callable[..., Connection]) -> None:
    conn.execute(
        "with p as (insert into mdm.aa_principal (name, role_name) values ('bound', 'test_mdm_worker') returning id)"
        " insert into mdm.aa_principal_tenant select p.id, %s from p",
        (make_tenant(conn),),
    )
    enqueue(conn)
    conn.execute("update mdm.aa_job set job_kind = 'nope'")
    assert value(connect(role="mdm_worker"), "select mdm.watch_invariants()") == 0
    assert value(connect(role="mdm_admin"), "select mdm.watch_invariants()") == 1


def test_watch_of_a_platform_without_ids_in_its_audit_looks_at_the_rows_alone(conn: Connection) -> None:
    make_job(conn, "dlq")
    conn.execute("delete from mdm.aa_audit_log")
    conn.execute("update mdm.aa_job set attempts = max_attempts + 1")
    assert watch(conn) == 2
    with conn.transaction(force_rollback=True):
        conn.execute("alter table mdm.aa_audit_log drop id")
        assert watch(conn) == 1
        assert violations(conn) == {"audit_row_missing": 1, "more_attempts_than_allowed": 1}
