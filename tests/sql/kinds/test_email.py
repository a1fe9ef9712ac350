"""send_email, mark_email, record_email: the database half of email_send (S2.1, S10.2, S11.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from jobs import (
    Connection,
    Row,
    actions,
    age,
    audit,
    call,
    claim_one,
    fail,
    job,
    make_tenant,
    recover,
    refused,
    rows,
    value,
)

Connect = Callable[..., Connection]
GOOD: dict[str, Any] = {"to": ["a@example.org"], "subject": "Hello", "text": "Text"}


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


def send_email(conn: Connection, tenant: UUID | None, **changed: Any) -> int:
    [row] = call(conn, "send_email", tenant_id=tenant, **{**GOOD, **changed})
    return int(row["send_email"])


def mark(conn: Connection, claimed: Row, recipient: str = "a@example.org", domain: str = "example.org") -> Row:
    [row] = call(
        conn, "mark_email", job_id=claimed["id"], lease_no=claimed["lease_no"], recipient=recipient, subject="Hello",
        provider="smtp", domain=domain,
    )  # fmt: skip
    return row


def record(conn: Connection, claimed: Row, outcome: str | None, recipient: str = "a@example.org") -> None:
    call(
        conn, "record_email", job_id=claimed["id"], lease_no=claimed["lease_no"], recipient=recipient, outcome=outcome,
        error=None if outcome == "sent" else "x" * 10_000,
    )  # fmt: skip


def log(conn: Connection) -> Row:
    [row] = rows(conn, "select * from mdm.aa_email_log")
    return row


def test_send_email_enqueues_in_the_producers_transaction(conn: Connection, connect: Connect, tenant: UUID) -> None:
    producer = connect(role="mdm_producer", autocommit=False)
    send_email(producer, tenant)
    producer.rollback()
    assert value(conn, "select count(*) from mdm.aa_job") == 0
    job_id = send_email(producer, tenant, html="<p>", reply_to="r@example.org")
    producer.commit()
    kept = job(conn, job_id)
    assert (kept["job_kind"], kept["tenant_id"]) == ("email_send", tenant)
    assert kept["payload"] == {**GOOD, "html": "<p>", "reply_to": "r@example.org"}


def test_send_email_passes_the_key_on(conn: Connection, tenant: UUID) -> None:
    first = send_email(conn, tenant, idempotency_key="k")
    assert send_email(conn, tenant, idempotency_key="k") == first
    assert send_email(conn, tenant, idempotency_key="k", on_conflict="update", subject="New") == first
    assert job(conn, first)["payload"]["subject"] == "New"


@pytest.mark.parametrize(
    "changed",
    [
        {"to": None}, {"to": []}, {"to": [None]}, {"to": [""]}, {"to": ["a b@example.org"]}, {"to": ["ä@example.org"]},
        {"to": ["a@example.org\r\nBcc: x@example.net"]}, {"to": ["a@example.org"] * 101}, {"to": ["a,b@example.org"]},
        {"to": ["a@b@example.org"]}, {"to": ["<a@example.org>"]}, {"to": ["[a]@example.org"]},
        {"reply_to": "a@example.org\nBcc: x"}, {"reply_to": ""}, {"subject": None}, {"subject": "a\r\nBcc: x@y"},
        {"subject": "x" * 901}, {"text": None},
    ],
    ids=lambda changed: repr(changed)[:40],
)  # fmt: skip
def test_b106_send_email_refuses_what_never_can_be_sent(
    conn: Connection, tenant: UUID, changed: dict[str, Any]
) -> None:
    with refused("MJ005"):
        send_email(conn, tenant, **changed)


def test_b106_send_email_refuses_a_backslash_whatever_the_sessions_strings(connect: Connect, tenant: UUID) -> None:
    session = connect(options="-c standard_conforming_strings=off -c escape_string_warning=off")
    for bad in ("a\\b@example.org", "\u00e4@example.org"):
        with refused("MJ005"):
            send_email(session, tenant, to=[bad])
    send_email(session, tenant)


def test_send_email_wants_a_tenant(conn: Connection) -> None:
    with refused("MJ005", match="tenant"):
        send_email(conn, None)


def test_mark_email_gives_the_same_message_id_in_every_run(conn: Connection, connect: Connect, tenant: UUID) -> None:
    send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    worker = connect(role="mdm_worker")
    first = mark(worker, claimed)
    assert first["decision"] == "send"
    record(worker, claimed, "failed")
    again = mark(worker, claimed, domain="elsewhere.example")
    assert again == first
    assert first["message_id"] == log(conn)["provider_message_id"]
    assert mark(conn, claimed, "b@example.org")["message_id"] != first["message_id"]


def test_record_email_audits_what_was_sent(conn: Connection, tenant: UUID) -> None:
    job_id = send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    sent = mark(conn, claimed)
    record(conn, claimed, "sent")
    assert actions(conn, job_id) == ["job_enqueued", "email_sent"]
    assert log(conn)["sent_at"] is not None
    assert mark(conn, claimed) == {**sent, "decision": "sent"}


@pytest.mark.parametrize("outcome", ["failed", "refused"])
def test_record_email_keeps_the_error_and_audits_nothing(conn: Connection, tenant: UUID, outcome: str) -> None:
    job_id = send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    mark(conn, claimed)
    record(conn, claimed, outcome)
    kept = log(conn)
    assert (kept["status"], kept["refused"], len(kept["error"])) == ("failed", outcome == "refused", 8192)
    assert actions(conn, job_id) == ["job_enqueued"]


def test_record_email_wants_a_mark_and_an_outcome(conn: Connection, tenant: UUID) -> None:
    send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    with refused("MJ004"):
        record(conn, claimed, "sent")
    mark(conn, claimed)
    for outcome in ("lost", None):
        with refused("MJ005"):
            record(conn, claimed, outcome)
    record(conn, claimed, "sent")
    with refused("MJ004"):
        record(conn, claimed, "sent")


def test_email_functions_want_the_lease(conn: Connection, tenant: UUID) -> None:
    send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    mark(conn, claimed)
    age(conn, claimed["id"])
    recover(conn)
    with refused("MJ001", detail="recovered"):
        mark(conn, claimed)
    with refused("MJ001", detail="recovered"):
        record(conn, claimed, "sent")


def test_mark_email_counts_lost_answers_and_stops_after_two(conn: Connection, tenant: UUID) -> None:
    send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    assert [mark(conn, claimed)["decision"] for _ in range(4)] == ["send", "send", "unknown", "unknown"]
    assert log(conn)["status"] == "failed"


@pytest.mark.parametrize("end", ["dead", "discarded"])
def test_mark_of_a_job_that_ended_without_an_answer_is_taken_back(
    conn: Connection, connect: Connect, tenant: UUID, end: str
) -> None:
    """Nobody is sending any more: the log says that it may have been sent, and a replay knows of it."""
    send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    mark(conn, claimed)
    settle = "select mdm.settle_emails()"
    assert value(connect(role="mdm_worker"), settle) == 0, "it is under way"
    fail(conn, claimed, retryable=end == "discarded")
    holder = connect(autocommit=False)
    holder.execute("select from mdm.aa_email_log for update")
    assert value(conn, settle) == 0, "passed over"
    holder.commit()
    if end == "discarded":
        call(conn, "discard_job", job_id=claimed["id"])
    else:
        conn.execute("call mdm.cleanup_jobs()")
    kept = log(conn)
    assert (kept["status"], kept["unknown_sends"], value(conn, settle)) == ("failed", 1, 0)
    assert "may have been sent" in kept["error"]
    if end == "dead":
        call(conn, "replay_job", job_id=claimed["id"])
        replayed = claim_one(conn, "email_send")
        assert [mark(conn, replayed)["decision"] for _ in range(2)] == ["send", "unknown"]


def test_upkeep_that_saw_the_job_dead_leaves_the_mark_of_its_replay(conn: Connection, tenant: UUID) -> None:
    """It had looked for dead jobs, then the job was replayed, claimed and marked: the answer is still to come."""
    send_email(conn, tenant)
    fail(conn, claim_one(conn, "email_send"), retryable=False)
    dead = value(conn, "select mdm._dead_jobs('email_send')")
    call(conn, "replay_job", job_id=dead[0])
    claimed = claim_one(conn, "email_send")
    mark(conn, claimed)
    assert value(conn, "select mdm._abandon_emails(%s, true)", dead) == 0
    record(conn, claimed, "sent")
    assert log(conn)["status"] == "sent"


def test_mark_email_sends_when_the_suppression_is_over(conn: Connection, tenant: UUID) -> None:
    send_email(conn, tenant)
    claimed = claim_one(conn, "email_send")
    conn.execute("insert into mdm.aa_email_suppression (address) values ('a@example.org')")
    assert mark(conn, claimed)["decision"] == "suppressed"
    assert log(conn)["status"] == "suppressed"
    conn.execute("delete from mdm.aa_email_suppression")
    assert mark(conn, claimed)["decision"] == "send"


def test_what_a_mail_says_is_hidden_from_the_dlq_and_the_audit(conn: Connection, tenant: UUID) -> None:
    job_id = send_email(conn, tenant, text="your secret", html="<b>your secret</b>")
    fail(conn, claim_one(conn, "email_send"), retryable=False)
    [shown] = rows(conn, "select payload from mdm.v_job_dlq")
    assert (shown["payload"]["text"], shown["payload"]["html"]) == ("[redacted]", "[redacted]")
    assert shown["payload"]["subject"]
    call(conn, "discard_job", job_id=job_id)
    assert audit(conn, job_id)[-1]["action"] == "job_discard"
    assert value(conn, "select count(*) from mdm.aa_audit_log where payload::text like '%%your secret%%'") == 0
