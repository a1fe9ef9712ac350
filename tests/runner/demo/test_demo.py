"""The demo of bin/run: idempotent loads, a change that makes vectors stale, a report that tells good from bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from entities import chunk, stale
from jobrunner.demo import load, reindexing, result
from jobrunner.demo.data import TENANTS, TYPES, Entity, entities, tenant_id
from jobs import Connection, claim, enqueue, finish, job, make_kind, rows, statuses, value

Connect = Callable[..., Connection]

TOKYO = {"name": "Tokyo International Airport", "country": "Japan", "timezone": "Asia/Tokyo"}
LONDON = {"name": "Heathrow", "country": "United Kingdom", "timezone": "Europe/London"}
MOSCOW = {"name": "Moscow", "alternate_names": ["Moskva", "Москва"], "country": "Russia"}
FEW = [
    Entity(tenant_id("AS"), "airport", "RJTT", TOKYO),
    Entity(tenant_id("EU"), "airport", "EGLL", LONDON),
    Entity(tenant_id("EU"), "city", "524901", MOSCOW),
]


@pytest.fixture
def loaded(conn: Connection) -> Connection:
    load.register(conn)
    load.load(conn, FEW)
    return conn


def work_off(conn: Connection) -> None:
    """Do what a runner does with the reindex jobs."""
    while claimed := claim(conn):
        with conn.transaction():
            assert chunk(conn, claimed[0])["is_last"]
            finish(conn, claimed[0])


def test_entities_are_real_and_complete() -> None:
    found = list(entities())
    count = Counter(entity.type_key for entity in found)
    assert count["airport"] > 25_000
    assert count["city"] > 25_000
    assert len({(entity.tenant_id, entity.type_key, entity.entity_key) for entity in found}) == len(found)
    assert {entity.tenant_id for entity in found} == {tenant_id(continent) for continent in TENANTS}
    for entity in found:
        assert set(entity.attributes) == set(TYPES[entity.type_key])


def test_load_twice_writes_once(conn: Connection) -> None:
    for _ in range(2):
        load.register(conn)
    assert load.load(conn, FEW) == (3, 3)
    assert load.load(conn, FEW) == (3, 0)
    changed = [FEW[0]._replace(attributes={"name": "Haneda"}), *FEW[1:]]
    assert load.load(conn, changed) == (3, 1)
    assert value(conn, "select count(*) from mdm.ddm_entity") == 3


def test_load_fires_the_trigger_and_nothing_is_searchable_at_first(loaded: Connection) -> None:
    assert {row["search_vector"] for row in rows(loaded, "select search_vector from mdm.ddm_entity")} == {""}


def test_mark_searchable_makes_vectors_stale_in_every_run(loaded: Connection) -> None:
    states: list[list[tuple[str, bool]]] = []
    for _ in range(3):
        changes = load.mark_searchable(loaded)
        states.append([(key, change.searchable) for change in changes for key in change.attribute_keys])
        assert stale(loaded) > 0
        load.enqueue(loaded)
        work_off(loaded)
        assert stale(loaded) == 0
    assert ("alternate_names", True) in states[0]
    assert states[1:] == [[("timezone", True)] * 2, [("timezone", False)] * 2]


def test_enqueue_makes_one_job_a_tenant_and_type_and_no_second_while_it_waits(loaded: Connection) -> None:
    first = load.enqueue(loaded)
    assert load.enqueue(loaded) == first
    assert statuses(loaded) == {"pending": 3}
    assert {(row["tenant_id"], row["payload"]["entity_type"]) for row in (job(loaded, number) for number in first)} == {
        (entity.tenant_id, entity.type_key) for entity in FEW
    }


def test_report_is_good_when_every_row_was_rebuilt(loaded: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    load.mark_searchable(loaded)
    job_ids = load.enqueue(loaded)
    work_off(loaded)
    assert reindexing.report(loaded, job_ids)
    said = capsys.readouterr().out
    assert "3 of 3 jobs done" in said
    assert "Moscow" in said
    assert "OK       3 rows registered" in said
    assert "job_done" in said


def spoil_a_row(conn: Connection) -> Any:
    return conn.execute("update mdm.ddm_entity set search_vector = 'spoilt' where entity_key = 'EGLL'")


def add_a_row(conn: Connection) -> Any:
    return load.load(conn, [*FEW, FEW[1]._replace(entity_key="EGKK")])


@pytest.mark.parametrize("harm", [spoil_a_row, add_a_row])
def test_report_is_bad_when_a_row_was_not_rebuilt(
    loaded: Connection, capsys: pytest.CaptureFixture[str], harm: Callable[[Connection], Any]
) -> None:
    load.mark_searchable(loaded)
    job_ids = load.enqueue(loaded)
    work_off(loaded)
    harm(loaded)
    assert not reindexing.report(loaded, job_ids)
    assert "FAILED   job" in capsys.readouterr().out


def test_report_is_bad_when_nothing_ran(loaded: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    load.mark_searchable(loaded)
    assert not reindexing.report(loaded, load.enqueue(loaded))
    assert "0 of 3 jobs done" in capsys.readouterr().out


def test_wait_until_ended_gives_up_in_time(loaded: Connection) -> None:
    job_ids = load.enqueue(loaded)
    result.wait_until_ended(loaded, job_ids, 0.2)
    assert statuses(loaded) == {"pending": 3}


def test_worker_role_is_a_worker_and_no_more(loaded: Connection, connect: Connect) -> None:
    for _ in range(2):
        load.ensure_login(loaded, load.WORKER_ROLE, "mdm_worker")
    session = connect(user=load.WORKER_ROLE)
    load.enqueue(loaded)
    assert len(claim(session)) == 1
    with pytest.raises(Exception, match="permission denied"):
        session.execute("select from mdm.ddm_entity")


def test_waiting_counts_what_the_changes_asked_for_and_no_job_of_others(conn: Connection) -> None:
    enqueue(conn, "index_sync")
    enqueue(conn, make_kind(conn, "thumbnail"))
    assert result.waiting(conn) == [("index_sync", 1)]
