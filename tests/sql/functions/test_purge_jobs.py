"""purge_jobs (S2.5, S9.3, D22, B68): old ended jobs only, per kind and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs import (
    Connection,
    actions,
    audit,
    call,
    finish,
    ids,
    job,
    make_job,
    make_kind,
    make_tenant,
    refused,
    status,
    value,
)

RETENTION = ("retention_done", "retention_dlq", "retention_failed")


def purge(conn: Connection, **parameters: Any) -> int:
    return int(call(conn, "purge_jobs", **parameters)[0]["purge_jobs"])


def set_back(conn: Connection, *job_ids: int, hours: int = 200) -> None:
    """Let everything about the jobs have happened `hours` ago."""
    conn.execute(
        "update mdm.aa_job set created_at = created_at - make_interval(hours => %(h)s),"
        " claimed_at = claimed_at - make_interval(hours => %(h)s),"
        " completed_at = completed_at - make_interval(hours => %(h)s) where id = any(%(ids)s)",
        {"h": hours, "ids": list(job_ids)},
    )


def one_of_each(conn: Connection, hours: int) -> dict[str, int]:
    made = {state: make_job(conn, state)["id"] for state in ("running", "done", "failed", "dlq", "pending")}
    conn.execute("update mdm.aa_job set available_at = '2090-01-01' where status = 'pending'")
    set_back(conn, *made.values(), hours=hours)
    return made


ENDED = ("done", "dlq", "failed")


@pytest.mark.parametrize(
    ("settings", "purged"),
    [
        ({"retention_done": "168 hours"}, {"old done"}),
        ({"retention_done": "201 hours"}, set()),
        ({"retention_done": "0"}, {"old done", "new done"}),
        ({"retention_done": "-1 hours"}, set()),
        ({"retention_done": None}, set()),
        ({"retention_dlq": "168 hours", "retention_done": None}, {"old dlq"}),
        ({"retention_failed": "168 hours", "retention_done": None}, {"old failed"}),
        (dict.fromkeys(RETENTION, "168 hours"), {"old done", "old dlq", "old failed"}),
        (
            dict.fromkeys(RETENTION, "0"),
            {f"{age} {state}" for age in ("old", "new") for state in ("done", "dlq", "failed")},
        ),
        (dict.fromkeys(RETENTION, "-1 seconds"), set()),
        (dict.fromkeys(RETENTION), set()),
    ],
    ids=repr,
)
def test_b68_purge_takes_what_its_retention_says(conn: Connection, settings: Any, purged: set[str]) -> None:
    made = {f"old {state}": job_id for state, job_id in one_of_each(conn, 200).items()}
    made |= {f"new {state}": job_id for state, job_id in one_of_each(conn, 0).items()}
    make_kind(conn, "reindex", **settings)
    assert purge(conn) == len(purged)
    assert {name for name, job_id in made.items() if status(conn, job_id) == "gone"} == purged
    assert purge(conn) == 0


def test_d22_default_keeps_dead_and_stopped_jobs_for_ever(conn: Connection) -> None:
    made = one_of_each(conn, 100000)
    assert purge(conn) == 1
    assert {state for state, job_id in made.items() if status(conn, job_id) == "gone"} == {"done"}


def test_b68_audit_survives(conn: Connection) -> None:
    done = make_job(conn, "done")["id"]
    set_back(conn, done)
    purge(conn)
    assert actions(conn, done) == ["job_enqueued", "job_done"]


@pytest.mark.parametrize("state", ["dlq", "failed"])
def test_d22_purge_of_a_dead_job_is_a_discard(conn: Connection, state: str) -> None:
    make_kind(conn, "reindex", redact=["secret"], **dict.fromkeys(RETENTION, "168 hours"))
    row = make_job(conn, state, payload={"a": 1, "secret": "s"})
    set_back(conn, row["id"])
    assert purge(conn) == 1
    last = audit(conn, row["id"])[-1]
    assert (last["action"], last["payload"]["reason"]) == ("job_discard", "retention")
    assert last["payload"]["payload"] == {"a": 1, "secret": "[redacted]"}


def test_purge_takes_the_oldest_first_up_to_its_limit(conn: Connection) -> None:
    made = [make_job(conn, "done")["id"] for _ in range(5)]
    for place, job_id in enumerate(made):
        set_back(conn, job_id, hours=1000 - (place * 3 % 5))
    other = make_job(conn, "done", "index_sync")["id"]
    set_back(conn, other, hours=1000)
    oldest = sorted(made, key=lambda job_id: job(conn, job_id)["completed_at"])
    assert purge(conn, limit=2) == 2
    gone = {job_id for job_id in (*made, other) if status(conn, job_id) == "gone"}
    assert gone <= {*oldest[:2], other}
    assert [purge(conn, limit=3), purge(conn, limit=3)] == [3, 1]


def test_purge_counts_its_limit_over_kinds_and_states(conn: Connection) -> None:
    for kind in ("reindex", "index_sync"):
        make_kind(conn, kind, **dict.fromkeys(RETENTION, "0"))
        for state in ("done", "failed", "dlq"):
            for _ in range(2):
                make_job(conn, state, kind)
    assert [purge(conn, limit=5) for _ in range(4)] == [5, 5, 2, 0]


@pytest.mark.parametrize("limit", [0, -1, 10001])
def test_d13_purge_refuses_other_limits(conn: Connection, limit: int) -> None:
    with refused("MJ005", match=f"p_limit is {limit}"):
        purge(conn, limit=limit)


def test_d13_null_limit_is_1000(conn: Connection) -> None:
    claimed = [make_job(conn, "running") for _ in range(3)]
    for row in claimed:
        finish(conn, row)
    set_back(conn, *ids(claimed))
    assert purge(conn, limit=None) == 3


def test_b68_second_purge_beside_the_first_is_harmless(conn: Connection, connect: Callable[..., Connection]) -> None:
    made = [make_job(conn, "done")["id"] for _ in range(4)]
    set_back(conn, *made)
    other = connect(autocommit=False)
    assert purge(other, limit=3) == 3
    assert purge(conn) == 1
    other.commit()
    assert purge(conn) == 0
    assert value(conn, "select count(*) from mdm.aa_job") == 0


@pytest.mark.parametrize("retention", RETENTION)
@pytest.mark.parametrize("hours", [876001, 87660000])
def test_one_kind_with_an_absurd_retention_stops_no_other(conn: Connection, retention: str, hours: int) -> None:
    """A retention that reaches before the beginning of the calendar is refused; the longest one works."""
    with refused("MJ005", match="aa_job_kind_retention_check"):
        make_kind(conn, "gin_backfill", **{retention: f"{hours} hours"})
    make_kind(conn, "gin_backfill", **{retention: "876000 hours"})
    made = make_job(conn, "done")["id"]
    set_back(conn, made)
    assert purge(conn) == 1


def test_what_a_dead_job_left_and_somebody_holds_keeps_no_other_job(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    """Invariant 5: one row that cannot go now does not stop the retention of all kinds."""
    make_kind(conn, "email_send", retention_dlq="1 hour")
    tenant = make_tenant(conn)
    dead = make_job(conn, "dlq", "email_send", tenant_id=tenant)["id"]
    done = [make_job(conn, "done", kind)["id"] for kind in ("cleanup_jobs", "reindex")]
    conn.execute(
        "insert into mdm.aa_email_log (tenant_id, job_id, recipient, status)"
        " values (%s, %s, 'a@example.org', 'sending')",
        (tenant, dead),
    )
    set_back(conn, dead, *done)
    holder = connect(autocommit=False)
    holder.execute("select from mdm.aa_email_log for update")
    assert purge(conn) == 2
    assert [status(conn, job_id) for job_id in (dead, *done)] == ["dlq", "gone", "gone"]
    holder.rollback()
    assert purge(conn) == 1
    assert status(conn, dead) == "gone"


def test_dead_jobs_do_not_take_the_places_of_done_ones(conn: Connection) -> None:
    make_kind(conn, "cleanup_jobs", retention_dlq="1 hour", retention_failed="1 hour")
    ended = {state: make_job(conn, state, "cleanup_jobs")["id"] for state in ("dlq", "failed")}
    ended["done"] = make_job(conn, "done")["id"]
    set_back(conn, *ended.values())
    assert purge(conn, limit=1) == 1
    assert status(conn, ended["done"]) == "gone"
