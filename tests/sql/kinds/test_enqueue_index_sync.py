"""The trigger that enqueues index_sync (S2.7): in the toggle's transaction, only when another index is wanted."""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID

import pytest

from entities import make_type
from jobs import Connection, audit, rows, value


def jobs_of(conn: Connection) -> list[tuple[Any, ...]]:
    """What was enqueued, oldest first: kind, type, key; and forget it."""
    found = rows(conn, "select * from mdm.aa_job order by id")
    conn.execute("delete from mdm.aa_job")
    return [(row["job_kind"], UUID(row["payload"]["entity_type_id"]), row["payload"]["attribute_key"]) for row in found]


@pytest.fixture
def thing(conn: Connection) -> UUID:
    thing = make_type(conn, "thing", searchable=["name"], other=["note"])
    assert jobs_of(conn) == [("index_sync", thing, "name")]
    return thing


@pytest.mark.parametrize("change", ["searchable = true", "sortable = true", "searchable = true, sortable = true"])
def test_toggle_enqueues_one_job_each_way(conn: Connection, thing: UUID, change: LiteralString) -> None:
    conn.execute(f"update mdm.ddm_entity_type_attribute set {change} where attribute_key = 'note'")
    assert jobs_of(conn) == [("index_sync", thing, "note")]
    conn.execute(
        "update mdm.ddm_entity_type_attribute set searchable = false, sortable = false where attribute_key = 'note'"
    )
    assert jobs_of(conn) == [("index_sync", thing, "note")]


def test_toggle_and_job_commit_together(conn: Connection, thing: UUID) -> None:
    with pytest.raises(RuntimeError), conn.transaction():
        conn.execute("update mdm.ddm_entity_type_attribute set sortable = true")
        assert value(conn, "select count(*) from mdm.aa_job") == 2
        raise RuntimeError
    assert jobs_of(conn) == []


def test_job_has_the_kinds_settings_and_an_audit_row(conn: Connection, thing: UUID) -> None:
    conn.execute("update mdm.ddm_entity_type_attribute set sortable = true where attribute_key = 'note'")
    [job] = rows(conn, "select * from mdm.aa_job")
    assert (job["priority"], job["max_attempts"], job["tenant_id"]) == (200, 3, None)
    assert [row["action"] for row in audit(conn, job["id"])] == ["job_enqueued"]


@pytest.mark.parametrize(
    "change", ["name = 'other'", "searchable = searchable", "index_status = 'failed'", "data_type = 'text'"]
)
def test_what_is_no_toggle_enqueues_nothing(conn: Connection, thing: UUID, change: LiteralString) -> None:
    conn.execute(f"update mdm.ddm_entity_type_attribute set {change}")
    assert jobs_of(conn) == []


def test_data_type_matters_where_there_is_an_index(conn: Connection, thing: UUID) -> None:
    conn.execute("update mdm.ddm_entity_type_attribute set data_type = 'number'")
    assert jobs_of(conn) == [("index_sync", thing, "name")]


def test_rename_gives_the_old_and_the_new_key_a_job(conn: Connection, thing: UUID) -> None:
    conn.execute("update mdm.ddm_entity_type_attribute set attribute_key = 'title' where attribute_key = 'name'")
    assert jobs_of(conn) == [("index_sync", thing, "name"), ("index_sync", thing, "title")]


def test_attribute_that_goes_away_with_its_type_gives_its_index_a_job(conn: Connection, thing: UUID) -> None:
    conn.execute("delete from mdm.ddm_entity_type")
    assert jobs_of(conn) == [("index_sync", thing, "name")]


def test_steward_needs_no_right_of_a_producer(conn: Connection, connect: Any, thing: UUID) -> None:
    conn.execute("grant update on mdm.ddm_entity_type_attribute to test_mdm_monitor")
    try:
        connect(role="mdm_monitor").execute("update mdm.ddm_entity_type_attribute set sortable = true")
        assert len(jobs_of(conn)) == 2
    finally:
        conn.execute("revoke update on mdm.ddm_entity_type_attribute from test_mdm_monitor")


def test_two_stewards_do_not_wait_for_each_other(conn: Connection, connect: Any, thing: UUID) -> None:
    first = connect(autocommit=False)
    first.execute("update mdm.ddm_entity_type_attribute set sortable = true where attribute_key = 'name'")
    conn.execute("set lock_timeout = '2s'")
    conn.execute("update mdm.ddm_entity_type_attribute set sortable = true where attribute_key = 'note'")
    first.commit()
    assert len(jobs_of(conn)) == 2
