"""The trigger that enqueues gin_backfill (S2.8)."""

from __future__ import annotations

from typing import Any

from jobs import Connection, rows


def jobs_of(conn: Connection) -> list[Any]:
    """The type keys of what was enqueued, oldest first; and forget it."""
    found = rows(conn, "select * from mdm.aa_job where job_kind = 'gin_backfill' order by id")
    conn.execute("delete from mdm.aa_job")
    return [row["payload"]["type_key"] for row in found]


def test_set_to_true_enqueues_and_back_enqueues_again(conn: Connection) -> None:
    conn.execute("insert into mdm.ddm_entity_type (type_key) values ('thing')")
    assert jobs_of(conn) == []
    conn.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    assert jobs_of(conn) == ["thing"]
    conn.execute("update mdm.ddm_entity_type set is_external_source_target = true, name = 'Thing'")
    assert jobs_of(conn) == []
    conn.execute("update mdm.ddm_entity_type set is_external_source_target = false")
    assert jobs_of(conn) == ["thing"]


def test_payload_names_the_type_by_its_key(conn: Connection) -> None:
    conn.execute("insert into mdm.ddm_entity_type (type_key, is_external_source_target) values ('thing', true)")
    [job] = rows(conn, "select * from mdm.aa_job")
    assert job["payload"] == {"type_key": "thing"}
    assert (job["priority"], job["max_attempts"]) == (200, 3)


def test_rename_and_delete_give_the_old_index_a_job(conn: Connection) -> None:
    conn.execute(
        "insert into mdm.ddm_entity_type (type_key, is_external_source_target) values ('thing', true), ('quiet', false)"
    )
    assert jobs_of(conn) == ["thing"]
    conn.execute("update mdm.ddm_entity_type set type_key = type_key || '2'")
    assert jobs_of(conn) == ["thing", "thing2"]
    conn.execute("delete from mdm.ddm_entity_type")
    assert jobs_of(conn) == ["thing2"]
