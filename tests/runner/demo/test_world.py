"""What bin/run --all looks at afterwards: each check tells good from bad, and nothing at all is bad."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from attachments import attach
from entities import make_type
from jobrunner.demo import every, world
from jobrunner.demo.clamd import MARKER
from jobrunner.demo.hooks import Hooks, Received
from jobrunner.demo.postbox import Postbox
from jobs import Connection, claim, enqueue, finish, make_tenant
from outbox import make_endpoint, make_event
from uploads import upload

pytestmark = pytest.mark.one_leg("15")

EVER = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


def good(checks: list[world.Check]) -> list[bool]:
    return [check.good for check in checks]


def log_mail(conn: Connection, status: str, recipient: str, message_id: str, refused: bool = False) -> None:
    conn.execute(
        """insert into mdm.aa_email_log (recipient, status, provider_message_id, refused, sent_at)
           values (%s, %s::mdm.email_status, %s, %s, case when %s = 'sent' then now() end)""",
        [recipient, status, message_id, refused, status],
    )


def test_mails_are_those_of_the_log_and_nobody_suppressed_got_one(conn: Connection) -> None:
    box = Postbox()
    assert good(world.mails(conn, EVER, box)) == [False, False, False]
    log_mail(conn, "sent", "a@x", "<1>")
    log_mail(conn, "failed", "b@x", "<2>", refused=True)
    log_mail(conn, "suppressed", "c@x", "<3>")
    assert good(world.mails(conn, EVER, box)) == [False, False, True]
    box.raw, box.recipients, box.refused = [b"Message-ID: <1>\n\nHello"], [["a@x"]], ["b@x"]
    assert good(world.mails(conn, EVER, box)) == [True, True, True]
    box.raw, box.recipients = box.raw * 2, [["a@x"], ["c@x"]]
    assert good(world.mails(conn, EVER, box)) == [False, True, False]


def test_calls_are_the_deliveries(conn: Connection, tenant: UUID) -> None:
    hooks = Hooks(port=1)
    assert good(world.calls(conn, EVER, hooks)) == [False]
    endpoint, event = make_endpoint(conn, tenant, hooks.url("/EU")), make_event(conn, tenant)
    conn.execute("insert into mdm.aa_webhook_delivery (event_id, endpoint_id) values (%s, %s)", [event, endpoint])
    assert good(world.calls(conn, EVER, hooks)) == [False]
    hooks.received.append(Received("/EU", f"evt_{event}", {}, {}, 0.0))
    assert good(world.calls(conn, EVER, hooks)) == [True]


def test_scans_say_what_is_in_the_files(conn: Connection, tenant: UUID, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"good")
    (tmp_path / "b").write_bytes(b"bad" + MARKER)
    attach(conn, tenant, "a", 4, "clean")
    attach(conn, tenant, "b", 4, "clean")
    assert sorted(good(world.scans(conn, EVER, tmp_path))) == [False, True]
    conn.execute("update mdm.ddm_attachment set virus_scan_status = 'infected' where storage_key = 'b'")
    assert good(world.scans(conn, EVER, tmp_path)) == [True, True]


def test_imports_are_the_lines_without_error(conn: Connection, tenant: UUID) -> None:
    type_id = make_type(conn, "thing", other=["name"])
    assert good(world.imports(conn, EVER)) == [False, False]
    upload(conn, tenant, type_id, [("a", {"name": "A"}), ("b", {"name": "B"})])
    store = "insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes) values (%s, %s, %s, %s)"
    conn.execute(store, [tenant, type_id, "a", '{"name": "A"}'])
    assert good(world.imports(conn, EVER)) == [False, False]
    conn.execute("update mdm.aa_import_row set error = 'wrong' where entity_key = 'b'")
    assert good(world.imports(conn, EVER)) == [True, True]
    conn.execute(store, [tenant, type_id, "b", '{"name": "B"}'])
    assert good(world.imports(conn, EVER)) == [True, False]


def test_indexes_are_those_that_are_wanted(conn: Connection) -> None:
    assert good(world.attribute_indexes(conn)) == good(world.gin_indexes(conn)) == [False]
    make_type(conn, "thing", searchable=["name"])
    conn.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    assert good(world.attribute_indexes(conn)) == good(world.gin_indexes(conn)) == [False]
    with conn.transaction(force_rollback=True):
        [[name]] = conn.execute(
            """select mdm._attribute_index_name(entity_type_id, attribute_key)
               from mdm.ddm_entity_type_attribute"""
        )
        conn.execute(f"create index {name} on mdm.ddm_entity ((attributes ->> 'name'))")
        conn.execute("create index ix_entity_attributes_gin_thing on mdm.ddm_entity using gin (attributes)")
        assert good(world.attribute_indexes(conn)) == good(world.gin_indexes(conn)) == [True]
        conn.execute("update pg_index set indisvalid = false where indexrelid = %s::regclass", [f"mdm.{name}"])
        assert good(world.attribute_indexes(conn)) == [False, False]


def test_a_stale_claim_is_recovered_when_another_runner_has_done_its_job(conn: Connection) -> None:
    assert good(world.stale_claims(conn, 7, [])) == [False]
    job_id = enqueue(conn)
    [claimed] = claim(conn, worker_id="host/8/a")
    finish(conn, claimed)
    assert good(world.stale_claims(conn, 7, [job_id])) == [False]
    conn.execute("update mdm.aa_job set recoveries = 1")
    assert good(world.stale_claims(conn, 7, [job_id])) == [True]
    assert good(world.stale_claims(conn, 8, [job_id])) == [False]


def test_report_fails_on_a_mismatch_and_on_a_job_that_is_not_done(
    conn: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue(conn)
    right, wrong = [world.Check(True, "all is well")], [world.Check(False, "one is missing")]
    assert not every.report(conn, EVER, {"reindex": right})
    assert "FAILED   reindex: 1 pending" in capsys.readouterr().out
    finish(conn, claim(conn)[0])
    assert not every.report(conn, EVER, {"reindex": wrong})
    assert "FAILED   reindex: one is missing" in capsys.readouterr().out
    assert not every.report(conn, EVER, {"reindex": right, "cleanup_jobs": right})
    assert "FAILED   cleanup_jobs: none" in capsys.readouterr().out
    assert every.report(conn, EVER, {"reindex": right})
    said = capsys.readouterr().out
    assert "OK       1 jobs of 1 kinds" in said
    assert "virus_scan was not run: clamd is not installed: apt-get install clamav-daemon" in said
