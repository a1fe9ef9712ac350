"""The kind email_send against a real mail server and stalling ones (S2.1, S10.2, S11.2; faults B105 to B107, B109)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest

from jobrunner.demo.postbox import Postbox, postbox
from jobrunner.errors import PermanentError, Snooze
from jobrunner.handlers.email_send import email_send
from jobrunner.providers import smtp
from jobrunner.providers.mail import MailUnavailable, MailUnknown
from jobs import Connection, Row, age, audit, claim_one, enqueue, fail, job, make_due, make_tenant, recover, rows
from lent import LeaseLost, run
from staller import staller

pytestmark = pytest.mark.one_leg("18")

TIMEOUT_SECONDS = 0.5
STAGES_OF_A_SESSION = 2


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Point the handler to a server."""

    def set_variables(port: int, **more: Any) -> None:
        given = {"HOST": "127.0.0.1", "PORT": port, "FROM": "MDM <mdm@example.org>", "TLS": "none", **more}
        for name, value in given.items():
            monkeypatch.setenv(f"JOBRUNNER_SMTP_{name}", str(value))

    return set_variables


@pytest.fixture
def box(use: Callable[..., None]) -> Iterator[Postbox]:
    with postbox() as (box, port):
        use(port)
        yield box


def claimed_email(conn: Connection, tenant: UUID, *to: Any, **more: Any) -> Row:
    """Enqueue an email and claim it."""
    payload = {"to": list(to or ("a@example.org",)), "subject": "Hello", "text": "Text", **more}
    enqueue(conn, "email_send", payload, tenant_id=tenant)
    return claim_one(conn, "email_send")


def again(conn: Connection, claimed: Row, crashed: bool = False) -> Row:
    """Fail the run, or recover it after its worker died, and claim the job anew."""
    if crashed:
        age(conn, claimed["id"])
        assert recover(conn) == {claimed["id"]: "pending"}
    else:
        fail(conn, claimed)
    make_due(conn, claimed["id"])
    return claim_one(conn, "email_send")


def log(conn: Connection, job_id: int) -> dict[str, Row]:
    return {row["recipient"]: row for row in rows(conn, "select * from mdm.aa_email_log where job_id = %s", job_id)}


def states(conn: Connection, job_id: int) -> dict[str, str]:
    return {recipient: row["status"] for recipient, row in log(conn, job_id).items()}


def sent_audits(conn: Connection, job_id: int) -> int:
    return [row["action"] for row in audit(conn, job_id)].count("email_sent")


def test_email_send_sends_text_and_html_to_each_recipient(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(
        conn, tenant, "a@example.org", {"address": "b@example.org", "name": "Bé, B."}, "A@example.org",
        subject="Grüße", html="<p>Hallo</p>", text="Hallo\n.\nÄ", reply_to="r@example.org",
    )  # fmt: skip
    run(email_send, conn, claimed)
    assert box.addressees == ["a@example.org", "b@example.org"]
    one, two = box.mails
    assert (one["subject"], one["from"], one["reply-to"]) == ("Grüße", "MDM <mdm@example.org>", "r@example.org")
    assert two["to"].addresses[0].display_name == "Bé, B."
    parts = [part.get_content().replace("\r\n", "\n") for part in one.iter_parts()]
    assert parts == ["Hallo\n.\nÄ\n", "<p>Hallo</p>\n"]
    assert one["date"].datetime is not None
    kept = log(conn, claimed["id"])
    assert {row["provider_message_id"] for row in kept.values()} == {one["message-id"], two["message-id"]}
    assert all(row["status"] == "sent" and row["sent_at"] and row["tenant_id"] == tenant for row in kept.values())
    assert job(conn, claimed["id"])["status"] == "done"
    assert sent_audits(conn, claimed["id"]) == 2


def test_email_send_commits_record_audit_and_finish_together(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(conn, tenant)
    crash_at(2, conn, claimed)
    assert len(box.raw) == 1
    assert states(conn, claimed["id"]) == {"a@example.org": "sending"}
    assert sent_audits(conn, claimed["id"]) == 0
    assert job(conn, claimed["id"])["status"] == "running"


def crash_at(number: int, conn: Connection, claimed: Row) -> None:
    """Run the handler and die before the commit of its chunk `number`."""

    def die(chunk: int) -> None:
        if chunk == number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(email_send, conn, claimed, before_commit=die)


def test_b105_email_send_after_a_lost_commit_sends_once_more_with_the_same_id(
    conn: Connection, tenant: UUID, box: Postbox
) -> None:
    claimed = claimed_email(conn, tenant)
    crash_at(2, conn, claimed)
    run(email_send, conn, again(conn, claimed, crashed=True))
    first, second = box.mails
    assert first["message-id"] == second["message-id"]
    assert states(conn, claimed["id"]) == {"a@example.org": "sent"}
    assert sent_audits(conn, claimed["id"]) == 1


def test_b105_email_send_never_sends_a_third_time(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(conn, tenant)
    crash_at(2, conn, claimed)
    second = again(conn, claimed, crashed=True)
    crash_at(2, conn, second)
    third = again(conn, second, crashed=True)
    with pytest.raises(PermanentError, match="unknown"):
        run(email_send, conn, third)
    assert len(box.raw) == 2
    assert states(conn, claimed["id"]) == {"a@example.org": "failed"}
    assert "may have been sent" in log(conn, claimed["id"])["a@example.org"]["error"]


def test_b105_email_send_keeps_what_was_recorded_before_the_crash(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(conn, tenant, "a@example.org", "b@example.org")
    crash_at(3, conn, claimed)  # the mark of the second
    run(email_send, conn, again(conn, claimed, crashed=True))
    assert box.addressees == ["a@example.org", "b@example.org"]


def test_b105_email_send_of_a_zombie_records_nothing(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(conn, tenant)
    box.on_data = lambda address: (age(conn2, claimed["id"]), recover(conn2), None)[-1]
    with psycopg.connect(conn.info.dsn, autocommit=True) as conn2, pytest.raises(LeaseLost):
        run(email_send, conn, claimed)
    assert states(conn, claimed["id"]) == {"a@example.org": "sending"}


@pytest.mark.parametrize(
    "payload",
    [
        {"subject": "a\r\nBcc: x@example.net"},
        {"subject": "a\nBcc: x@example.net"},
        {"subject": "a\u2028Bcc: x@example.net"},
        {"subject": "x" * 10_000_000},
        {"subject": None},
        {"to": [{"address": "a@example.org", "name": "A\r\nBcc: x@example.net"}]},
        {"to": [{"address": "a@example.org", "name": "A\x85Bcc: x@example.net"}]},
        {"to": ["a b@example.org"]},
        {"to": ["a@example.org>\r\nRCPT TO:<x@example.net"]},
        {"to": ["A <a@example.org>"]},
        {"to": ["a@example.org,x@example.net"]},
        {"to": ["ä@example.org"]},
        {"to": [".a@example.org"]},
        {"to": [""]},
        {"to": []},
        {"to": "a@example.org"},
        {"to": [17]},
        {"to": [None]},
        {"to": ["a@example.org"] * 101},
        {"reply_to": "a@example.org\r\nBcc: x@example.net"},
        {"text": None},
        {"text": 17},
        {"bcc": ["x@example.net"]},
    ],
    ids=lambda payload: repr(payload)[:40],
)
def test_b106_email_send_refuses_what_can_never_be_sent(
    conn: Connection, tenant: UUID, box: Postbox, payload: dict[str, Any]
) -> None:
    bad = claimed_email(conn, tenant, **payload)
    with pytest.raises(PermanentError):
        run(email_send, conn, bad)
    run(email_send, conn, claimed_email(conn, tenant))
    assert box.addressees == ["a@example.org"]
    assert log(conn, bad["id"]) == {}


def test_b106_email_send_takes_odd_but_legal_input(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(
        conn, tenant, {"address": "o'neil+x_1@mail.example.org", "name": "Bcc: x@example.net"},
        subject="Bcc: x@example.net " + "ö" * 800, text=".\r.\n..\r\nFrom x\n.",
    )  # fmt: skip
    run(email_send, conn, claimed)
    assert box.addressees == ["o'neil+x_1@mail.example.org"]
    [mail] = box.mails
    assert mail["bcc"] is None
    assert mail["subject"] == "Bcc: x@example.net " + "ö" * 800
    assert mail.get_content().replace("\r\n", "\n") == ".\n.\n..\nFrom x\n.\n"


STAGES = ("banner", "EHLO", "MAIL", "RCPT", "DATA", "in DATA", "dot")


@pytest.mark.parametrize(
    ("stage", "how"),
    [("connect", "silent"), *((stage, how) for stage in STAGES for how in ("silent", "drip", "hang up"))],
)
def test_b107_email_send_ends_within_its_limit(
    conn: Connection,
    tenant: UUID,
    use: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    how: str,
) -> None:
    monkeypatch.setattr(smtp, "STAGES", STAGES_OF_A_SESSION)
    claimed = claimed_email(conn, tenant, text=("x" * 70 + "\n") * (100_000 if stage == "in DATA" else 10))
    with staller(stage, how) as (_, port):
        use(port, TIMEOUT_SECONDS=TIMEOUT_SECONDS)
        began = monotonic()
        with pytest.raises(MailUnknown if stage == "dot" else MailUnavailable):
            run(email_send, conn, claimed)
        assert monotonic() - began < STAGES_OF_A_SESSION * TIMEOUT_SECONDS + 15
    before_mark = stage in ("connect", "banner", "EHLO")
    expected = {} if before_mark else {"a@example.org": "sending" if stage == "dot" else "failed"}
    assert states(conn, claimed["id"]) == expected


def test_b107_email_send_after_an_answer_lost_once_sends_again(
    conn: Connection, tenant: UUID, use: Callable[..., None], box: Postbox
) -> None:
    with staller("dot") as (_, port), pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBRUNNER_SMTP_PORT", str(port))
        patch.setenv("JOBRUNNER_SMTP_TIMEOUT_SECONDS", str(TIMEOUT_SECONDS))
        claimed = claimed_email(conn, tenant)
        with pytest.raises(MailUnknown):
            run(email_send, conn, claimed)
    run(email_send, conn, again(conn, claimed))
    assert box.addressees == ["a@example.org"]
    assert log(conn, claimed["id"])["a@example.org"]["unknown_sends"] == 1


@pytest.mark.parametrize("code", ["421 busy", "450 later", "451 later", "452 full"])
@pytest.mark.parametrize("at", ["on_rcpt", "on_data"])
def test_b109_email_send_tries_a_4xx_again(conn: Connection, tenant: UUID, box: Postbox, code: str, at: str) -> None:
    setattr(box, at, lambda address: code)
    claimed = claimed_email(conn, tenant)
    with pytest.raises(MailUnavailable, match=code):
        run(email_send, conn, claimed)
    assert states(conn, claimed["id"]) == {"a@example.org": "failed"}
    setattr(box, at, lambda address: None)
    run(email_send, conn, again(conn, claimed))
    assert len(box.raw) == 1
    assert log(conn, claimed["id"])["a@example.org"]["unknown_sends"] == 0


@pytest.mark.parametrize("code", ["550 no such user", "552 too large", "554 no"])
@pytest.mark.parametrize("at", ["on_rcpt", "on_data"])
def test_b109_email_send_gives_up_at_a_5xx(conn: Connection, tenant: UUID, box: Postbox, code: str, at: str) -> None:
    setattr(box, at, lambda address: code)
    claimed = claimed_email(conn, tenant)
    with pytest.raises(PermanentError, match=code):
        run(email_send, conn, claimed)
    kept = log(conn, claimed["id"])["a@example.org"]
    assert (kept["status"], kept["refused"]) == ("failed", True)
    assert code in kept["error"]


def test_b109_email_send_does_not_mail_the_accepted_twice(conn: Connection, tenant: UUID, box: Postbox) -> None:
    answers = {"b@example.org": "450 later", "c@example.org": "550 never"}
    box.on_rcpt = answers.get
    claimed = claimed_email(conn, tenant, "a@example.org", "b@example.org", "c@example.org", "d@example.org")
    with pytest.raises(MailUnavailable, match=r"b@example\.org.*c@example\.org"):
        run(email_send, conn, claimed)
    assert box.addressees == ["a@example.org", "d@example.org"]
    answers.clear()
    second = again(conn, claimed)
    with pytest.raises(PermanentError, match=r"c@example\.org: refused"):
        run(email_send, conn, second)
    assert box.addressees == ["a@example.org", "d@example.org", "b@example.org"]
    fail(conn, second, retryable=False)
    conn.execute("select mdm.replay_job(%s)", (claimed["id"],))
    run(email_send, conn, claim_one(conn, "email_send"))  # an admin's replay asks once more
    assert box.addressees == ["a@example.org", "d@example.org", "b@example.org", "c@example.org"]
    assert sent_audits(conn, claimed["id"]) == 4


def test_b109_email_send_asks_for_suppression_when_it_sends(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(conn, tenant, "A@Example.org", "b@example.org", "c@example.org")
    other = make_tenant(conn, "other")
    for tenant_id, address in ((None, "a@example.org"), (tenant, "b@example.org"), (other, "c@example.org")):
        conn.execute("insert into mdm.aa_email_suppression (tenant_id, address) values (%s, %s)", (tenant_id, address))
    run(email_send, conn, claimed)
    assert box.addressees == ["c@example.org"]
    assert states(conn, claimed["id"]) == {
        "A@Example.org": "suppressed", "b@example.org": "suppressed", "c@example.org": "sent"
    }  # fmt: skip
    assert sent_audits(conn, claimed["id"]) == 1
    assert job(conn, claimed["id"])["status"] == "done"


def test_email_send_without_settings_gives_the_job_back(
    conn: Connection, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBRUNNER_SMTP_HOST", raising=False)
    with pytest.raises(Snooze) as raised:
        run(email_send, conn, claimed_email(conn, tenant))
    assert "JOBRUNNER_SMTP_HOST" in raised.value.reason


def test_email_send_ends_done_when_everything_was_sent_already(conn: Connection, tenant: UUID, box: Postbox) -> None:
    claimed = claimed_email(conn, tenant)
    run(email_send, conn, claimed)
    conn.execute("update mdm.aa_job set status = 'dlq' where id = %s", (claimed["id"],))
    conn.execute("select mdm.replay_job(%s)", (claimed["id"],))
    run(email_send, conn, claim_one(conn, "email_send"))
    assert len(box.raw) == 1
