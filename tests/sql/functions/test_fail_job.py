"""fail_job (S5.2, S5.3, S6, D6, D8, D9, D10): retry, dead, clamps. Superseding is tested in test_states."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from jobs import (
    CLAMPED_DELAYS,
    Connection,
    Row,
    actions,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    job,
    make_due,
    make_job,
    make_kind,
    make_tenant,
    rows,
    status,
    value,
    violations,
)

HOUR = timedelta(hours=1)
BASE, CAP = timedelta(seconds=30), 24 * HOUR


def delay(conn: Connection, claimed: Row, **parameters: Any) -> timedelta:
    """Fail a job and return how far from now its next attempt is, as seen by the database's clock before the call."""
    before = value(conn, "select clock_timestamp()")
    answer = fail(conn, claimed, **parameters)
    assert answer["status"] == "pending"
    wait: timedelta = answer["available_at"] - before
    return wait


def test_fail_job_answers_what_it_stored(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    answer = fail(conn, claimed)
    row = job(conn, claimed["id"])
    assert answer == {"status": row["status"], "available_at": row["available_at"]}


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        (1, 30),
        (2, 60),
        (3, 120),
        (4, 240),
        (5, 480),
        (6, 960),
        (7, 1920),
        (8, 3840),
        (9, 7680),
        (12, 61440),
        (13, 86400),
    ],
)
def test_fail_job_waits_as_the_specification_says(conn: Connection, attempts: int, expected: int) -> None:
    make_kind(conn, "plain")
    claimed = make_job(conn, "running", "plain", max_attempts=20)
    conn.execute("update mdm.aa_job set attempts = %s", (attempts,))
    wait = delay(conn, claimed)
    assert timedelta(seconds=expected) <= wait <= timedelta(seconds=expected * 1.1 + 5)


@pytest.mark.parametrize("attempts", [1, 2, 12, 13, 31, 32, 40, 64, 1100, 2147483646])
def test_b19_any_number_of_attempts_gives_a_retry(conn: Connection, attempts: int) -> None:
    make_kind(conn, "plain")
    claimed = make_job(conn, "running", "plain", max_attempts=2147483647)
    conn.execute("update mdm.aa_job set attempts = %s", (attempts,))
    assert BASE <= delay(conn, claimed) <= CAP * 1.1 + timedelta(seconds=5)
    make_due(conn, claimed["id"])
    assert claim_one(conn, "plain")["attempts"] == attempts + 1


def test_b21_jobs_that_failed_together_come_back_apart(conn: Connection) -> None:
    make_kind(conn, "plain")
    conn.execute("select mdm.enqueue_job('plain') from generate_series(1, 1000)")
    conn.execute("update mdm.aa_job set attempts = 2")
    claimed = claim(conn, "plain", limit=1000)
    with conn.transaction():
        started = value(conn, "select clock_timestamp()")
        conn.execute(
            "select mdm.fail_job(c.id, c.lease_no, 'x') from unnest(%s::bigint[], %s::bigint[]) c (id, lease_no)",
            ([row["id"] for row in claimed], [row["lease_no"] for row in claimed]),
        )
        took = value(conn, "select clock_timestamp()") - started
    waits = [
        (row["available_at"] - started).total_seconds() for row in rows(conn, "select available_at from mdm.aa_job")
    ]
    assert min(waits) >= 120
    assert max(waits) <= 132 + took.total_seconds()
    assert max(waits) - min(waits) >= 0.8 * 12
    assert len(set(waits)) > 990


@pytest.mark.parametrize(("jitter", "most"), [(0, 30), (1, 60)])
def test_jitter_is_the_kinds(conn: Connection, jitter: float, most: int) -> None:
    make_kind(conn, "plain", jitter=jitter)
    assert BASE <= delay(conn, make_job(conn, "running", "plain")) <= timedelta(seconds=most + 5)


def test_backoff_is_read_from_the_kind_at_the_failure(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    make_kind(conn, "reindex", base_delay="2 hours", max_delay="3 hours", jitter=0)
    assert 2 * HOUR <= delay(conn, claimed) <= 2 * HOUR + timedelta(seconds=5)
    make_due(conn, claimed["id"])
    assert 3 * HOUR <= delay(conn, claim_one(conn)) <= 3 * HOUR + timedelta(seconds=5)


@pytest.mark.parametrize(("given", "expected"), CLAMPED_DELAYS)
def test_b22_retry_after_is_clamped(conn: Connection, given: str, expected: timedelta) -> None:
    claimed = make_job(conn, "running")
    assert expected <= delay(conn, claimed, retry_after=given) <= expected + timedelta(seconds=5)


def test_b22_null_retry_after_is_the_backoff(conn: Connection) -> None:
    assert delay(conn, make_job(conn, "running"), retry_after=None) >= BASE


@pytest.mark.parametrize("moment", ["2026-03-28 12:00", "2026-10-24 12:00"])
def test_b23_caps_are_hours_on_switch_days(conn: Connection, moment: str) -> None:
    conn.execute("set timezone = 'Europe/Berlin'")
    make_kind(conn, "plain", max_delay="1 day")
    query = """
        select (%s::timestamptz + d - %s::timestamptz) = interval '24 hours'
        from mdm.aa_job_kind k
        cross join lateral (values
          (mdm._backoff(99, k.base_delay, k.max_delay, 0, 0)),
          (mdm._clamp_delay('1 day', k.max_delay)),
          (mdm._clamp_delay('2 days', k.max_delay))) v (d)
        where k.job_kind = 'plain'
    """
    assert conn.execute(query, (moment, moment)).fetchall() == [(True,)] * 3


def test_b23_failure_in_a_berlin_session_waits_the_same(conn: Connection) -> None:
    conn.execute("set timezone = 'Europe/Berlin'")
    make_kind(conn, "plain", base_delay="1 day", max_delay="1 day", jitter=0)
    claimed = make_job(conn, "running", "plain")
    assert CAP <= delay(conn, claimed) <= CAP + timedelta(seconds=5)


# ---- dead


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
def test_s53_job_is_dead_after_max_attempts(conn: Connection, max_attempts: int) -> None:
    job_id = enqueue(conn, max_attempts=max_attempts)
    for attempt in range(1, max_attempts + 1):
        make_due(conn, job_id)
        answer = fail(conn, claim_one(conn), f"error {attempt}")
        assert answer["status"] == ("dlq" if attempt == max_attempts else "pending")
    row = job(conn, job_id)
    assert (row["attempts"], row["last_error"]) == (max_attempts, f"error {max_attempts}")
    assert row["claimed_by"] == "w1"
    assert violations(conn) == {}


def test_s53_death_is_audited_with_its_error(conn: Connection) -> None:
    tenant_id, actor = make_tenant(conn), uuid4()
    claimed = make_job(conn, "running", tenant_id=tenant_id, max_attempts=1)
    fail(conn, claimed, "boom", actor_principal_id=actor)
    row = audit(conn, claimed["id"])[-1]
    assert (row["action"], row["actor_principal_id"], row["tenant_id"]) == ("job_dlq", actor, tenant_id)
    assert row["payload"] == {"job_kind": "reindex", "last_error": "boom", "attempts": 1}


def test_d15_death_is_audited_for_an_exceptions_kind_too(conn: Connection) -> None:
    assert actions(conn, make_job(conn, "dlq", "cleanup_jobs")["id"]) == ["job_dlq"]


def test_d15_retry_is_not_audited(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    fail(conn, claimed)
    assert actions(conn, claimed["id"]) == ["job_enqueued"]


@pytest.mark.parametrize(("retryable", "becomes"), [(False, "dlq"), (True, "pending"), (None, "pending")])
def test_d10_error_that_cannot_be_retried_kills_at_once(conn: Connection, retryable: bool | None, becomes: str) -> None:
    claimed = make_job(conn, "running", max_attempts=2)
    assert fail(conn, claimed, retryable=retryable)["status"] == becomes


def test_d10_retry_after_does_not_save_a_dead_job(conn: Connection) -> None:
    claimed = make_job(conn, "running", max_attempts=1)
    assert fail(conn, claimed, retry_after="1 hour")["status"] == "dlq"


# ---- the error text (D9)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (None, "no error text"),
        ("", ""),
        ("x" * 8192, "x" * 8192),
        ("x" * 8193, "x" * 8192),
        ("é" * 5000, "é" * 4096),
        ("x" + "é" * 5000, "x" + "é" * 4095),
        ("€" * 3000, "€" * 2730),
        ("😀" * 3000, "😀" * 2048),
        ("line\nline", "line\nline"),
    ],
    ids=lambda text: repr(text)[:12],
)
def test_d9_error_is_cut_on_a_character(conn: Connection, text: str | None, stored: str) -> None:
    for parameters in ({}, {"retryable": False}):
        claimed = make_job(conn, "running")
        fail(conn, claimed, text, **parameters)
        assert job(conn, claimed["id"])["last_error"] == stored
        make_kind(conn, "reindex", enabled=True)
    assert audit(conn, claimed["id"])[-1]["payload"]["last_error"] == stored


# ---- its transaction


def test_fail_job_rolled_back_leaves_the_job_running(conn: Connection, connect: Callable[..., Connection]) -> None:
    claimed = make_job(conn, "running")
    worker = connect(autocommit=False)
    fail(worker, claimed, retryable=False)
    worker.rollback()
    assert status(conn, claimed["id"]) == "running"
    assert actions(conn, claimed["id"]) == ["job_enqueued"]
    call(conn, "check_lease", job_id=claimed["id"], lease_no=claimed["lease_no"])
