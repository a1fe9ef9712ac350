"""mdm.settle_scans: an attachment whose scan died without a word is failed in the end, never clean (S2.6)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from attachments import attach, attachment
from jobs import (
    Connection,
    age,
    call,
    claim_one,
    enqueue,
    fail,
    make_due,
    make_kind,
    make_tenant,
    recover,
    refused,
    status,
    value,
)

Connect = Callable[..., Connection]
SETTLE = "select mdm.settle_scans()"


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


def state(conn: Connection, attachment_id: UUID) -> str:
    return str(attachment(conn, attachment_id)["virus_scan_status"])


def kill(conn: Connection) -> int:
    """Let eight runners die with the job, as many as it has attempts; return its id."""
    for _ in range(8):
        claimed = claim_one(conn, "virus_scan")
        age(conn, claimed["id"])
        recover(conn)
        make_due(conn, claimed["id"])
    assert status(conn, claimed["id"]) == "dlq"
    return int(claimed["id"])


def test_killed_eight_times_is_failed_by_the_cleanup_and_a_replay_scans(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    job_id = kill(conn)
    assert state(conn, attachment_id) == "pending"
    conn.execute("call mdm.cleanup_jobs()")
    found = attachment(conn, attachment_id)
    assert (found["virus_scan_status"], found["scanned_at"] is None) == ("failed", False)
    assert "ended without a result" in found["virus_scan_result"]
    call(conn, "replay_job", job_id=job_id)
    claimed = claim_one(conn, "virus_scan")
    call(
        conn, "record_scan", job_id=job_id, lease_no=claimed["lease_no"], storage_key="a.txt", size_bytes=3, found=None
    )
    assert (value(conn, SETTLE), state(conn, attachment_id)) == (0, "clean")


def test_reason_of_the_last_try_is_kept(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    conn.execute("update mdm.ddm_attachment set virus_scan_result = 'connection reset'")
    kill(conn)
    assert value(conn, SETTLE) == 1
    assert attachment(conn, attachment_id)["virus_scan_result"] == "connection reset"


def test_scan_that_waits_or_runs_is_left_alone(conn: Connection, connect: Connect, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    kill(conn)
    enqueue(conn, "virus_scan", {"attachment_id": str(attachment_id)}, tenant_id=tenant)
    worker = connect(role="mdm_worker")
    assert value(worker, SETTLE) == 0
    claimed = claim_one(conn, "virus_scan")
    assert value(worker, SETTLE) == 0
    fail(conn, claimed)
    assert (value(worker, SETTLE), state(conn, attachment_id)) == (0, "pending")


@pytest.mark.parametrize("result", ["clean", "infected"])
def test_result_is_never_taken_away(conn: Connection, tenant: UUID, result: str) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3, status=result)
    enqueue(conn, "virus_scan", {"attachment_id": str(attachment_id)}, tenant_id=tenant)
    kill(conn)
    assert (value(conn, SETTLE), state(conn, attachment_id)) == (0, result)


def test_dead_job_of_another_tenant_or_another_thing_says_nothing(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    conn.execute("delete from mdm.aa_job")
    for payload in ({"attachment_id": str(attachment_id)}, {"attachment_id": "x"}, {}):
        enqueue(conn, "virus_scan", payload, tenant_id=make_tenant(conn, "two"))
        fail(conn, claim_one(conn, "virus_scan"), retryable=False)
    assert (value(conn, SETTLE), state(conn, attachment_id)) == (0, "pending")


@pytest.mark.parametrize("how", ["discard_job", "discard_jobs", "purge_jobs"])
def test_scan_that_is_deleted_is_failed_in_the_same_transaction_and_can_be_asked_for_again(
    conn: Connection, tenant: UUID, how: str
) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    claimed = claim_one(conn, "virus_scan")
    with conn.transaction():
        if how == "discard_job":
            fail(conn, claimed)
            call(conn, how, job_id=claimed["id"])
        else:
            fail(conn, claimed, retryable=False)
            make_kind(conn, "virus_scan", retention_dlq="0")
            call(conn, how, **({"filter": {"all": True}, "dry_run": False} if how == "discard_jobs" else {}))
        found = attachment(conn, attachment_id)
        assert (status(conn, claimed["id"]), found["virus_scan_status"]) == ("gone", "failed")
        assert "ended without a result" in found["virus_scan_result"]
    conn.execute("update mdm.ddm_attachment set virus_scan_status = 'pending' where virus_scan_status = 'failed'")
    assert claim_one(conn, "virus_scan")["payload"] == {"attachment_id": str(attachment_id)}


def test_discard_leaves_an_attachment_alone_that_another_job_scans(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    second = enqueue(conn, "virus_scan", {"attachment_id": str(attachment_id)}, tenant_id=tenant)
    call(conn, "discard_job", job_id=second)
    assert state(conn, attachment_id) == "pending"


def test_discard_gives_up_soon_where_somebody_holds_the_attachment(
    conn: Connection, connect: Connect, tenant: UUID
) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    claimed = claim_one(conn, "virus_scan")
    fail(conn, claimed)
    holder = connect(autocommit=False)
    holder.execute("update mdm.ddm_attachment set file_name = 'b'")
    with refused("55P03"):
        call(conn, "discard_job", job_id=claimed["id"])
    holder.commit()
    call(conn, "discard_job", job_id=claimed["id"])
    assert state(conn, attachment_id) == "failed"


def test_attachment_that_somebody_holds_stops_neither_the_others_nor_the_upkeep(
    conn: Connection, connect: Connect, tenant: UUID
) -> None:
    held, other = attach(conn, tenant, "a.txt", 3), attach(conn, tenant, "b.txt", 3)
    for _ in range(2):
        call(conn, "stop_job", job_id=claim_one(conn, "virus_scan")["id"])
    holder = connect(autocommit=False)
    holder.execute("select from mdm.ddm_attachment where id = %s for update", (held,))
    conn.execute("set lock_timeout = '1s'")
    assert (value(conn, SETTLE), state(conn, other)) == (1, "failed")
    holder.commit()
    assert (value(conn, SETTLE), state(conn, held)) == (1, "failed")
