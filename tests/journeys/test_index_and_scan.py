"""index_sync, gin_backfill and virus_scan through the real command, from the action to the result (S2.6-S2.8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from psycopg.conninfo import make_conninfo

from attachments import attach, attachment, running_clamd
from entities import add_entities, make_type
from jobrunner.demo.clamd import MARKER
from jobs import Connection, age, make_due, make_tenant, recover, rows, status, statuses, value, violations
from runnerkit import KILL, TERM, Command, eventually, jobrunner

Connect = Callable[..., Connection]
KINDS = "index_sync,gin_backfill,virus_scan"


@pytest.fixture
def own(connect: Connect, fresh_dsn: str) -> Connection:
    return connect(dsn=fresh_dsn)


@pytest.fixture
def worker_dsn(fresh_dsn: str) -> str:
    return make_conninfo(fresh_dsn, user="test_mdm_worker")


@pytest.fixture
def ddl(fresh_dsn: str) -> dict[str, str]:
    """The environment of a runner that may build indexes."""
    return {"JOBRUNNER_DDL_DSN": make_conninfo(fresh_dsn, user="test_mdm_indexer")}


@pytest.fixture
def thing(own: Connection) -> UUID:
    thing = make_type(own, "thing", searchable=["name"], other=["note"])
    add_entities(own, make_tenant(own), thing, ({"name": f"name{number}"} for number in range(500)))
    return thing


def attribute_status(conn: Connection, key: str) -> str:
    return str(value(conn, "select index_status from mdm.ddm_entity_type_attribute where attribute_key = %s", key))


def all_done(conn: Connection) -> bool:
    """Whether nothing is left; what waits for another build is made due."""
    make_due(
        conn, *(row["id"] for row in rows(conn, "select id from mdm.aa_job where status = 'pending' and attempts < 2"))
    )
    return set(statuses(conn)) == {"done"}


def stopped(command: Command) -> int:
    command.signal(TERM)
    return command.end()


def test_toggles_and_uploads_come_to_their_results(
    own: Connection, worker_dsn: str, ddl: dict[str, str], thing: UUID, tmp_path: Path
) -> None:
    tenant = make_tenant(own)
    (tmp_path / "good").write_bytes(b"good")
    (tmp_path / "bad").write_bytes(MARKER)
    with running_clamd() as clamd:
        environ = {**ddl, "JOBRUNNER_CLAMD": str(clamd), "JOBRUNNER_STORAGE_DIR": str(tmp_path)}
        with jobrunner(worker_dsn, "--kinds", KINDS, **environ) as command:
            own.execute("update mdm.ddm_entity_type_attribute set sortable = true where attribute_key = 'note'")
            own.execute("update mdm.ddm_entity_type set is_external_source_target = true")
            good, bad = attach(own, tenant, "good", 4), attach(own, tenant, "bad", len(MARKER))
            lost, outside = attach(own, tenant, "lost", 1), attach(own, tenant, "../bad", 1)
            eventually(lambda: attribute_status(own, "name") == attribute_status(own, "note") == "active", 60)
            eventually(lambda: value(own, "select gin_index_status from mdm.ddm_entity_type") == "active", 60)
            eventually(lambda: attachment(own, outside)["virus_scan_status"] == "failed")
            eventually(lambda: attachment(own, lost)["virus_scan_result"] is not None)
            eventually(lambda: statuses(own) == {"done": 5, "dlq": 1, "pending": 1})
            assert attachment(own, good)["virus_scan_status"] == "clean"
            assert attachment(own, bad)["virus_scan_result"] == "Test.Marker.UNOFFICIAL"
            assert attachment(own, lost)["virus_scan_status"] == "pending"
            assert stopped(command) == 0
    assert violations(own) == {}


def test_b101_kill_in_the_middle_of_a_build_ends_in_one_valid_index(
    own: Connection, connect: Connect, fresh_dsn: str, worker_dsn: str, ddl: dict[str, str], thing: UUID
) -> None:
    [job_id] = [row["id"] for row in rows(own, "select id from mdm.aa_job")]
    writer = connect(dsn=fresh_dsn, autocommit=False)
    writer.execute("update mdm.ddm_entity set attributes = attributes || '{}'")
    with jobrunner(worker_dsn, "--kinds", "index_sync", **ddl) as command:
        eventually(lambda: rows(own, "select from pg_stat_activity where query ~ '^create index concurrently'"))
        command.signal(KILL)
        command.end()
    assert attribute_status(own, "name") == "building"
    age(own, job_id)
    assert eventually(lambda: recover(own)) == {job_id: "pending"}
    with jobrunner(worker_dsn, "--kinds", "index_sync", **ddl) as command:
        # the build of the dead runner still has the table: its job waits, and loses no attempt by it
        eventually(lambda: value(own, "select releases from mdm.aa_job"))
        writer.rollback()
        eventually(lambda: all_done(own), 60)
        assert stopped(command) == 0
    assert (status(own, job_id), attribute_status(own, "name")) == ("done", "active")
    assert value(own, "select attempts from mdm.aa_job") == 2
    found = rows(own, "select indisvalid from pg_index where indexrelid::regclass::text ~ 'ix_entity_attribute'")
    assert found == [{"indisvalid": True}]


def test_stop_in_the_middle_of_a_build_gives_the_job_back(
    own: Connection, connect: Connect, fresh_dsn: str, worker_dsn: str, ddl: dict[str, str], thing: UUID
) -> None:
    writer = connect(dsn=fresh_dsn, autocommit=False)
    writer.execute("update mdm.ddm_entity set attributes = attributes || '{}'")
    with jobrunner(worker_dsn, "--kinds", "index_sync", "--grace", "0.5", **ddl) as command:
        eventually(lambda: rows(own, "select from pg_stat_activity where query ~ '^create index concurrently'"))
        command.signal(TERM)
        command.end()
    [job] = rows(own, "select * from mdm.aa_job")
    assert (job["status"], job["attempts"]) == ("pending", 0)
    writer.rollback()
    with jobrunner(worker_dsn, "--kinds", "index_sync", **ddl) as command:
        eventually(lambda: all_done(own), 60)
        assert stopped(command) == 0
    assert attribute_status(own, "name") == "active"
