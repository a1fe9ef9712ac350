"""The trigger of attachments, attachment_to_scan, record_scan and fail_scan: the database half of virus_scan (S2.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from attachments import attach, attachment
from jobs import Connection, Row, call, claim_one, enqueue, fail, make_due, make_tenant, refused, rows, value

Connect = Callable[..., Connection]


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


def record(conn: Connection, claimed: Row, found: str | None, key: str = "a.txt", size: int = 3) -> bool:
    [row] = call(
        conn,
        "record_scan",
        job_id=claimed["id"],
        lease_no=claimed["lease_no"],
        storage_key=key,
        size_bytes=size,
        found=found,
    )
    return bool(row["record_scan"])


def give_up(conn: Connection, claimed: Row, error: str = "broken", **more: Any) -> bool:
    [row] = call(
        conn, "fail_scan", job_id=claimed["id"], lease_no=claimed["lease_no"], storage_key="a.txt", size_bytes=3,
        error=error, **more,
    )  # fmt: skip
    return bool(row["fail_scan"])


def test_commit_of_an_upload_enqueues_in_its_transaction(conn: Connection, tenant: UUID) -> None:
    with pytest.raises(RuntimeError), conn.transaction():
        attach(conn, tenant, "a.txt", 3)
        raise RuntimeError
    assert rows(conn, "select from mdm.aa_job") == []
    attachment_id = attach(conn, tenant, "a.txt", 3)
    [job] = rows(conn, "select * from mdm.aa_job")
    assert (job["job_kind"], job["tenant_id"]) == ("virus_scan", tenant)
    assert job["payload"] == {"attachment_id": str(attachment_id)}


def test_what_is_scanned_already_or_only_renamed_enqueues_nothing(conn: Connection, tenant: UUID) -> None:
    attach(conn, tenant, "a.txt", 3, status="clean")
    conn.execute("update mdm.ddm_attachment set file_name = 'other'")
    conn.execute("update mdm.ddm_attachment set storage_key = storage_key, virus_scan_status = 'infected'")
    assert rows(conn, "select from mdm.aa_job") == []


@pytest.mark.parametrize("change", ["storage_key = 'b.txt'", "size_bytes = 4", "virus_scan_status = 'pending'"])
def test_new_content_or_a_reset_is_pending_and_scanned_again(conn: Connection, tenant: UUID, change: str) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3, status="clean")
    conn.execute(f"update mdm.ddm_attachment set {change}".encode())
    assert attachment(conn, attachment_id)["virus_scan_status"] == "pending"
    assert len(rows(conn, "select from mdm.aa_job")) == 1


def test_record_scan_writes_clean_or_what_was_found(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    claimed = claim_one(conn, "virus_scan")
    assert record(conn, claimed, None)
    found = attachment(conn, attachment_id)
    assert (found["virus_scan_status"], found["virus_scan_result"]) == ("clean", None)
    assert found["scanned_at"] is not None
    assert record(conn, claimed, "Eicar " + "x" * 2000)
    found = attachment(conn, attachment_id)
    assert (found["virus_scan_status"], len(found["virus_scan_result"])) == ("infected", 1000)


@pytest.mark.parametrize("changed", [{"key": "b.txt"}, {"size": 4}])
def test_record_scan_leaves_other_content_alone(conn: Connection, tenant: UUID, changed: dict[str, Any]) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    assert not record(conn, claim_one(conn, "virus_scan"), None, **changed)
    assert attachment(conn, attachment_id)["virus_scan_status"] == "pending"


def test_fail_scan_says_failed_only_when_final(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3)
    job_id = value(conn, "update mdm.aa_job set max_attempts = 2 returning id")
    for attempt in (1, 2):
        claimed = claim_one(conn, "virus_scan")
        assert give_up(conn, claimed) == (attempt == 2)
        found = attachment(conn, attachment_id)
        assert found["virus_scan_status"] == ("pending", "failed")[attempt - 1]
        assert (found["virus_scan_result"], found["scanned_at"] is None) == ("broken", attempt == 1)
        fail(conn, claimed)
        if attempt == 1:
            make_due(conn, job_id)


def test_fail_scan_that_is_permanent_is_final_at_once_and_takes_clean_away(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3, status="clean")
    enqueue(conn, "virus_scan", {"attachment_id": str(attachment_id)}, tenant_id=tenant)
    claimed = claim_one(conn, "virus_scan")
    assert not give_up(conn, claimed)
    assert attachment(conn, attachment_id)["virus_scan_status"] == "clean", "the earlier result holds until then"
    assert give_up(conn, claimed, retryable=False)
    assert attachment(conn, attachment_id)["virus_scan_status"] == "failed"


def test_attachment_of_another_tenant_is_not_given_out(conn: Connection, tenant: UUID) -> None:
    attachment_id = attach(conn, tenant, "a.txt", 3, status="clean")
    enqueue(conn, "virus_scan", {"attachment_id": str(attachment_id)}, tenant_id=make_tenant(conn, "two"))
    claimed = claim_one(conn, "virus_scan")
    assert call(conn, "attachment_to_scan", job_id=claimed["id"], lease_no=claimed["lease_no"]) == []
    assert not record(conn, claimed, "Eicar")
    assert give_up(conn, claimed, retryable=False)
    assert attachment(conn, attachment_id)["virus_scan_status"] == "clean"


@pytest.mark.parametrize("payload", [{}, {"attachment_id": "x"}, {"attachment_id": [1]}])
def test_bad_payload_is_mj005(conn: Connection, tenant: UUID, payload: dict[str, Any]) -> None:
    enqueue(conn, "virus_scan", payload, tenant_id=tenant)
    claimed = claim_one(conn, "virus_scan")
    with refused("MJ005", match="names no attachment"):
        call(conn, "attachment_to_scan", job_id=claimed["id"], lease_no=claimed["lease_no"])


def test_job_of_another_kind_and_lost_lease_are_refused(conn: Connection, tenant: UUID) -> None:
    enqueue(conn, "reindex")
    claimed = claim_one(conn, "reindex")
    with refused("MJ005", match="is no virus_scan"):
        record(conn, claimed, None)
    enqueue(conn, "virus_scan", {"attachment_id": str(uuid4())}, tenant_id=tenant)
    claimed = claim_one(conn, "virus_scan")
    lost = {**claimed, "lease_no": claimed["lease_no"] ^ 1}
    for step in (record, give_up):
        with refused("MJ001"):
            step(conn, lost, "x")


def test_worker_has_the_right_and_a_stranger_has_not(conn: Connection, connect: Connect, tenant: UUID) -> None:
    attach(conn, tenant, "a.txt", 3)
    claimed = claim_one(conn, "virus_scan")
    assert record(connect(role="mdm_worker"), claimed, None)
    with refused("42501"):
        record(connect(role="mdm_producer"), claimed, None)
