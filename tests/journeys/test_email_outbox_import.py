"""email_send, outbox_dispatch and bulk_import through the real command, from action to result (S2.1, S2.2, S2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from uuid import UUID

import pytest
from psycopg.conninfo import make_conninfo

from entities import make_type
from jobrunner.demo.hooks import Hooks, answer, hooks
from jobrunner.demo.postbox import Postbox, postbox
from jobs import Connection, age, call, job, make_due, make_tenant, recover, rows, status, value, violations
from outbox import endpoint, make_endpoint, make_event, make_events, states, undispatched
from runnerkit import KILL, TERM, Command, eventually, jobrunner
from uploads import entities, the_import, upload_many

pytestmark = pytest.mark.one_leg("18")

Connect = Callable[..., Connection]


@pytest.fixture
def own(connect: Connect, fresh_dsn: str) -> Connection:
    return connect(dsn=fresh_dsn)


@pytest.fixture
def worker_dsn(fresh_dsn: str) -> str:
    return make_conninfo(fresh_dsn, user="test_mdm_worker")


@pytest.fixture
def tenant(own: Connection) -> UUID:
    return make_tenant(own, "one")


@pytest.fixture
def box() -> Iterator[tuple[Postbox, dict[str, str]]]:
    """A mail server, and the environment of a runner that uses it."""
    with postbox() as (box, port):
        yield (
            box,
            {
                "JOBRUNNER_SMTP_HOST": "127.0.0.1",
                "JOBRUNNER_SMTP_PORT": str(port),
                "JOBRUNNER_SMTP_FROM": "mdm@example.org",
                "JOBRUNNER_SMTP_TLS": "none",
            },
        )


@pytest.fixture
def consumer() -> Iterator[tuple[Hooks, dict[str, str]]]:
    """A webhook consumer, and the environment of a runner that may post to it."""
    with hooks() as consumer:
        yield consumer, {"JOBRUNNER_WEBHOOK_ALLOW": "127.0.0.0/8"}


def send_email(conn: Connection, tenant: UUID, *to: str) -> int:
    """Send an email as the service layer does."""
    [row] = call(conn, "send_email", tenant_id=tenant, to=list(to), subject="Hello", text="Text")
    return int(row["send_email"])


def recover_all(conn: Connection) -> None:
    """Let the claims of a killed runner be stale, take them back, and make them due."""
    running = [row["id"] for row in rows(conn, "select id from mdm.aa_job where status = 'running'")]
    age(conn, *running)
    recovered: set[int] = set()
    # the session of the killed process may still hold the row for a moment
    eventually(lambda: recovered.update(recover(conn)) or recovered == set(running))
    make_due(conn, *running)


def drained(dsn: str, kind: str, environ: dict[str, str]) -> None:
    """Run what is due to its end."""
    with jobrunner(dsn, "--kinds", kind, "--drain", **environ) as command:
        assert command.end(60) == 0, command.log


def killed(command: Command) -> None:
    command.signal(KILL)
    command.end()


def test_b109_mails_that_cannot_be_sent_hold_up_nobody(
    own: Connection, worker_dsn: str, tenant: UUID, box: tuple[Postbox, dict[str, str]]
) -> None:
    postbox, environ = box
    postbox.on_rcpt = lambda address: "550 no such user" if address.startswith("bad") else None
    bad = [send_email(own, tenant, f"bad{number}@example.org") for number in range(50)]
    mixed = send_email(own, tenant, "bad@example.org", "mixed@example.org")
    good = [send_email(own, tenant, f"good{number}@example.org") for number in range(5)]
    with jobrunner(worker_dsn, "--kinds", "email_send", **environ) as command:
        eventually(lambda: value(own, "select count(*) from mdm.aa_job where completed_at is not null") == 56, 60)
        command.signal(TERM)
        assert command.end() == 0
    assert {status(own, job_id) for job_id in [*bad, mixed]} == {"dlq"}
    assert {job(own, job_id)["attempts"] for job_id in bad} == {1}
    assert {status(own, job_id) for job_id in good} == {"done"}
    assert sorted(postbox.addressees) == sorted(
        ["mixed@example.org", *(f"good{number}@example.org" for number in range(5))]
    )
    sent = "select count(*) from mdm.aa_audit_log where action = 'email_sent'"
    assert value(own, sent) == value(own, "select count(*) from mdm.aa_email_log where status = 'sent'") == 6
    assert violations(own) == {}


def test_b105_kill_after_the_server_took_the_mail(
    own: Connection, worker_dsn: str, tenant: UUID, box: tuple[Postbox, dict[str, str]]
) -> None:
    postbox, environ = box
    job_id = send_email(own, tenant, "a@example.org")
    with jobrunner(worker_dsn, "--kinds", "email_send", **environ) as command:
        postbox.on_data = lambda address: command.signal(KILL)  # it is taken all the same
        command.end()
    assert len(postbox.raw) == 1
    assert value(own, "select status from mdm.aa_email_log") == "sending"
    recover_all(own)
    postbox.on_data = lambda address: None
    drained(worker_dsn, "email_send", environ)
    first, second = postbox.mails
    assert first["message-id"] == second["message-id"]
    assert status(own, job_id) == "done"
    assert value(own, "select count(*) from mdm.aa_audit_log where action = 'email_sent'") == 1


def test_b111_a_slow_endpoint_holds_up_neither_others_nor_other_kinds(
    own: Connection, worker_dsn: str, tenant: UUID, consumer: tuple[Hooks, dict[str, str]]
) -> None:
    consumed, environ = consumer
    consumed.answers["/slow"] = lambda request: (consumed.over.wait(30), answer(204)(request))[-1]
    slow = make_endpoint(own, tenant, consumed.url("/slow"), "slow")
    make_endpoint(own, tenant, consumed.url("/quick"), "quick")
    type_id = make_type(own, "thing", searchable=["name"])
    assert type_id
    with jobrunner(worker_dsn, "--kinds", "outbox_dispatch,reindex", **environ) as command:
        for _ in range(100):
            make_event(own, tenant, "slow")
        eventually(lambda: consumed.ids("/slow"))
        began = monotonic()
        for _ in range(20):
            make_event(own, tenant, "quick")
        reindex = call(own, "enqueue_job", job_kind="reindex")[0]["enqueue_job"]
        eventually(lambda: len(consumed.ids("/quick")) == 20 and status(own, reindex) == "done")
        assert monotonic() - began < 8, "the slow endpoint is given up after 10 s"
        assert consumed.at_once["/slow"] <= 8
        eventually(lambda: endpoint(own, slow)["failures"] >= 1, 60)
        command.signal(TERM)
        assert command.end() == 0
    assert len(consumed.ids("/slow")) <= 2 * 8, "paused after a round, then probed"


def test_outbox_killed_in_the_middle_repeats_nothing_that_was_recorded(
    own: Connection, worker_dsn: str, tenant: UUID, consumer: tuple[Hooks, dict[str, str]]
) -> None:
    consumed, environ = consumer
    make_endpoint(own, tenant, consumed.url())
    make_events(own, tenant, 2000)
    with jobrunner(worker_dsn, "--kinds", "outbox_dispatch", **environ) as command:
        eventually(lambda: states(own).count("delivered") > 50)
        killed(command)
    delivered = "select 'evt_' || event_id from mdm.aa_webhook_delivery where status = 'delivered'"
    recorded = {row[0] for row in own.execute(delivered)}
    before = len(consumed.received)
    assert len(recorded) < 2000
    recover_all(own)
    drained(worker_dsn, "outbox_dispatch", environ)
    assert undispatched(own) == 0
    assert not recorded & {one.webhook_id for one in consumed.received[before:]}
    assert len(set(consumed.ids())) == 2000
    assert len(consumed.received) <= 2000 + 8
    assert violations(own) == {}


def test_import_killed_in_the_middle_goes_on(own: Connection, worker_dsn: str, tenant: UUID) -> None:
    type_id = make_type(own, "thing", searchable=["name"])
    import_id = upload_many(own, tenant, type_id, 20_000)
    with jobrunner(worker_dsn, "--kinds", "bulk_import") as command:
        eventually(lambda: the_import(own, import_id)["rows_imported"] > 0)
        killed(command)
    assert the_import(own, import_id)["status"] == "running"
    recover_all(own)
    drained(worker_dsn, "bulk_import", {})
    kept = the_import(own, import_id)
    assert (kept["status"], kept["rows_imported"], len(entities(own, tenant))) == ("done", 20_000, 20_000)
    assert violations(own) == {}


def test_a_runner_without_smtp_settings_says_so(worker_dsn: str) -> None:
    with jobrunner(worker_dsn, "--kinds", "email_send", "--once", JOBRUNNER_SMTP_HOST="") as command:
        assert command.end() == 2
        assert "JOBRUNNER_SMTP_HOST" in command.log
