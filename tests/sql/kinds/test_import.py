"""The database half of bulk_import (S2.2): trigger, validation, chunks (faults B118, B119)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from entities import make_type, stale
from jobs import (
    Connection,
    Row,
    age,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    job,
    make_due,
    make_tenant,
    recover,
    refused,
    rows,
    stored,
    value,
)
from uploads import add_attribute, chunk, entities, outcomes, the_import, upload, upload_many

Connect = Callable[..., Connection]


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def thing(conn: Connection) -> UUID:
    return make_type(conn, "thing", searchable=["name"], other=["note"])


def claimed_import(conn: Connection) -> Row:
    return claim_one(conn, "bulk_import")


def run(conn: Connection, claimed: Row, limit: int = 1000) -> None:
    """Run all chunks and finish the job, each in a transaction of its own."""
    last = False
    while not last:
        with conn.transaction():
            last = chunk(conn, claimed, limit)[2]
            if last:
                finish(conn, claimed)


def imported(
    conn: Connection, tenant: UUID, type_id: UUID, given: list[tuple[Any, Any]]
) -> list[tuple[str, str | None]]:
    """Upload rows, import them, and say what became of each."""
    import_id = upload(conn, tenant, type_id, given)
    run(conn, claimed_import(conn))
    return outcomes(conn, import_id)


# -- trigger


def test_an_upload_enqueues_its_job_in_the_same_transaction(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    other = connect(role="mdm_platform")
    with other.transaction(force_rollback=True):
        upload(other, tenant, thing, [("a", {})])
        assert claim(conn, "bulk_import") == []
    assert claim(conn, "bulk_import") == []
    with other.transaction():
        import_id = upload(other, tenant, thing, [("a", {})])
    claimed = claimed_import(conn)
    assert (claimed["payload"], claimed["tenant_id"]) == ({"import_id": str(import_id)}, tenant)


def test_an_upload_in_parts_enqueues_when_it_is_complete(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = value(
        conn,
        "insert into mdm.aa_import (tenant_id, entity_type_id, status) values (%s, %s, 'uploading') returning id",
        tenant,
        thing,
    )
    assert claim(conn, "bulk_import") == []
    conn.execute("update mdm.aa_import set file_name = 'x', status = 'pending' where id = %s", (import_id,))
    claimed = claimed_import(conn)
    run(conn, claimed)
    assert claim(conn, "bulk_import") == []  # the job's own changes of the status enqueue nothing
    assert the_import(conn, import_id)["report"] == {"rows": 0, "imported": 0, "rejected": 0, "errors": []}


# -- validation


def test_import_chunk_stores_good_rows_and_reports(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    import_id = upload(conn, tenant, thing, [(" a ", {"name": "A"}), ("b", {"name": None}), ("c", {"name": 1})])
    run(connect(role="mdm_worker"), claimed_import(conn))
    assert entities(conn, tenant) == {"a": {"name": "A"}, "b": {"name": None}}
    assert outcomes(conn, import_id) == [("imported", None), ("imported", None), ("rejected", "name is no text")]
    kept = the_import(conn, import_id)
    assert (kept["status"], kept["rows_total"], kept["rows_imported"], kept["rows_rejected"]) == ("done", 3, 2, 1)
    assert kept["report"] == {
        "rows": 3,
        "imported": 2,
        "rejected": 1,
        "errors": [{"error": "name is no text", "rows": 1, "first_row": 3}],
    }
    found = "select r.row_no from mdm.aa_import_row r join mdm.ddm_entity e on e.id = r.entity_id order by 1"
    assert [row[0] for row in conn.execute(found)] == [1, 2]
    assert stale(conn) == 0


@pytest.mark.parametrize(
    ("data_type", "good", "bad"),
    [
        ("text", ["", "a", "ä" * 5000, [], ["a", "b"]], [1, True, {}, ["a", 1], [["a"]]]),
        ("number", [0, -1.5, 1e300, 10**40], ["1", True, [], {}, [1]]),
        ("boolean", [True, False], ["true", 0, 1, []]),
        ("date", ["2024-02-29", "0001-01-01"],
         ["2023-02-29", "2024-13-01", "today", "infinity", "01/02/2024", "2024-1-1", "0000-01-01", "", 20240101, []]),
        ("timestamp", ["2024-02-29T12:00:00Z", "2024-02-29 12:00", "2024-02-29T12:00:00.5+02:00"],
         ["now", "2024-02-30T12:00Z", "2024-02-29", "2024-02-29T25:00Z", "2024-02-29T12:00:00 Europe/Berlin", "x", 5]),
    ],
)  # fmt: skip
def test_import_chunk_checks_the_type(
    conn: Connection, tenant: UUID, data_type: str, good: list[Any], bad: list[Any]
) -> None:
    type_id = make_type(conn, "typed")
    add_attribute(conn, type_id, "value", data_type)
    given = [(f"k{number}", {"value": one}) for number, one in enumerate([*good, None, *bad])]
    expected = [("imported", None)] * (len(good) + 1) + [("rejected", f"value is no {data_type}")] * len(bad)
    assert imported(conn, tenant, type_id, given) == expected


def test_import_chunk_names_everything_that_is_wrong_with_a_row(conn: Connection, tenant: UUID) -> None:
    type_id = make_type(conn, "strict")
    add_attribute(conn, type_id, "name", required=True)
    add_attribute(conn, type_id, "height", "number", required=True)
    assert imported(
        conn, tenant, type_id,
        [
            (None, {"name": "a", "height": 1}),
            ("   ", {"name": "a", "height": 1}),
            ("x" * 1001, {"name": "a", "height": 1}),
            ("a", None),
            ("b", [1]),
            ("c", "text"),
            ("d", {}),
            ("e", {"name": None, "height": "high", "wieght": 3}),
            ("f", {"name": "a", "height": 1}),
        ],
    ) == [
        ("rejected", "entity_key is missing"),
        ("rejected", "entity_key is missing"),
        ("rejected", "entity_key is longer than 1,000 bytes"),
        ("rejected", "attributes is no JSON object"),
        ("rejected", "attributes is no JSON object"),
        ("rejected", "attributes is no JSON object"),
        ("rejected", "height is required; name is required"),
        ("rejected", "height is no number; name is required; wieght is no attribute of the type"),
        ("imported", None),
    ]  # fmt: skip


def test_import_chunk_checks_references_to_other_types(conn: Connection, tenant: UUID) -> None:
    country, city = make_type(conn, "country"), make_type(conn, "city")
    add_attribute(conn, city, "country", reference_type_id=country)
    imported(conn, tenant, country, [("de", {})])
    imported(conn, make_tenant(conn, "other"), country, [("fr", {})])
    assert imported(conn, tenant, city, [("a", {"country": "de"}), ("b", {"country": "fr"}), ("c", {})]) == [
        ("imported", None),
        ("rejected", "country: there is no entity fr"),
        ("imported", None),
    ]


def test_import_chunk_checks_references_within_the_upload(conn: Connection, tenant: UUID) -> None:
    type_id = make_type(conn, "unit")
    add_attribute(conn, type_id, "parent", reference_type_id=type_id)
    imported(conn, tenant, type_id, [("old", {})])
    given = [("a", {"parent": "b"}), ("b", {"parent": "old"}), ("c", {"parent": "gone"}), ("d", {"parent": None})]
    import_id = upload(conn, tenant, type_id, given)
    run(conn, claimed_import(conn), limit=1)
    assert [status for status, _ in outcomes(conn, import_id)] == ["imported", "imported", "rejected", "imported"]
    assert outcomes(conn, import_id)[2][1] == "parent: there is no entity gone"


def test_b118_of_rows_with_the_same_key_the_last_counts(conn: Connection, tenant: UUID, thing: UUID) -> None:
    given = [
        ("a", {"name": "1"}),
        ("b", {"name": "2"}),
        (" A ", {"name": "3"}),
        ("B", {"name": 4}),
        ("c", {"name": "5"}),
    ]
    assert imported(conn, tenant, thing, given) == [
        ("rejected", "row 3 has the same entity_key"),
        ("rejected", "row 4 has the same entity_key"),
        ("imported", None),
        ("rejected", "name is no text"),
        ("imported", None),
    ]
    assert entities(conn, tenant) == {"A": {"name": "3"}, "c": {"name": "5"}}
    assert value(conn, "select status from mdm.aa_job where job_kind = 'bulk_import'") == "done"


def test_b119_a_key_that_somebody_else_makes_takes_the_upload(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    import_id = upload_many(conn, tenant, thing, 100)
    claimed = claimed_import(conn)
    for _ in range(4):
        chunk(conn, claimed, 10)
    connect().execute(
        "insert into mdm.ddm_entity (tenant_id, entity_type_id, entity_key, attributes) values (%s, %s, '55', '{}')",
        (tenant, thing),
    )
    run(conn, claimed, 10)
    assert len(entities(conn, tenant)) == 100
    assert entities(conn, tenant)["55"] == {"name": "name 55"}
    assert the_import(conn, import_id)["rows_imported"] == 100


def test_import_chunk_updates_what_is_there(conn: Connection, tenant: UUID, thing: UUID) -> None:
    imported(conn, tenant, thing, [("a", {"name": "old", "note": "n"})])
    before = rows(conn, "select * from mdm.ddm_entity")[0]
    imported(conn, tenant, thing, [("a", {"name": "new"})])
    after = rows(conn, "select * from mdm.ddm_entity")[0]
    assert (after["id"], after["attributes"]) == (before["id"], {"name": "new"})
    assert after["updated_at"] > before["updated_at"]
    assert stale(conn) == 0


# -- chunks and crashes


def test_import_chunk_resumes_behind_the_last_commit(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    import_id = upload_many(conn, tenant, thing, 25)
    first = claimed_import(conn)
    assert chunk(conn, first, 10) == (0, 0, False)  # the look at the whole upload
    assert chunk(conn, first, 10) == (10, 0, False)
    crashed = connect(autocommit=False)
    chunk(crashed, first, 10)
    crashed.rollback()
    age(conn, first["id"])
    recover(conn)
    make_due(conn, first["id"])
    second = claimed_import(conn)
    with refused("MJ001", detail="claimed again"):
        chunk(conn, first, 10)
    assert chunk(conn, second, 10) == (10, 0, False)
    assert chunk(conn, second, 10) == (5, 0, True)
    assert the_import(conn, import_id)["rows_imported"] == len(entities(conn, tenant)) == 25
    assert chunk(conn, second, 10) == (0, 0, True)


def test_import_chunk_and_finish_are_one_transaction(
    conn: Connection, connect: Connect, tenant: UUID, thing: UUID
) -> None:
    import_id = upload_many(conn, tenant, thing, 3)
    claimed = claimed_import(conn)
    chunk(conn, claimed)
    other = connect()
    with pytest.raises(ZeroDivisionError), other.transaction():
        assert chunk(other, claimed)[2]
        finish(other, claimed)
        raise ZeroDivisionError
    assert (entities(conn, tenant), the_import(conn, import_id)["status"]) == ({}, "running")


def test_two_jobs_of_one_upload_take_turns(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 10)
    first = claimed_import(conn)
    chunk(conn, first)
    again = {"import_id": str(import_id)}
    enqueue(conn, "bulk_import", again, tenant_id=tenant)
    second = claimed_import(conn)
    assert [chunk(conn, first, 4), chunk(conn, second, 4), chunk(conn, first, 4), chunk(conn, second, 4)] == [
        (4, 0, False), (4, 0, False), (2, 0, True), (0, 0, True)
    ]  # fmt: skip


def test_a_pass_that_is_asked_for_again_takes_what_is_still_pending(
    conn: Connection, tenant: UUID, thing: UUID
) -> None:
    import_id = upload(conn, tenant, thing, [("a", {"name": "A"}), ("b", {"name": 1})])
    run(conn, claimed_import(conn))
    conn.execute("update mdm.aa_import_row set attributes = '{\"name\": \"B\"}', status = 'pending' where row_no = 2")
    conn.execute("update mdm.aa_import set status = 'pending', completed_at = null where id = %s", (import_id,))
    run(conn, claimed_import(conn))
    assert entities(conn, tenant) == {"a": {"name": "A"}, "b": {"name": "B"}}
    kept = the_import(conn, import_id)
    assert (kept["rows_total"], kept["rows_imported"], kept["report"]["imported"]) == (1, 1, 2)


def test_import_chunk_rejects_the_row_that_cannot_be_stored(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 3)
    claimed = claimed_import(conn)
    chunk(conn, claimed)
    assert chunk(conn, claimed, 1) == (1, 0, False)
    assert chunk(conn, claimed, 1, reject="the platform says no") == (0, 1, False)
    run(conn, claimed)
    assert outcomes(conn, import_id) == [("imported", None), ("rejected", "the platform says no"), ("imported", None)]


# -- refusals


@pytest.mark.parametrize(
    "payload", [{}, {"import_id": None}, {"import_id": 7}, {"import_id": str(uuid4())}, {"import_id": "x"}]
)
def test_import_chunk_refuses_a_payload_without_an_upload(conn: Connection, tenant: UUID, payload: Any) -> None:
    enqueue(conn, "bulk_import", payload, tenant_id=tenant)
    with refused("MJ005", match="no upload"):
        chunk(conn, claimed_import(conn))


def test_import_chunk_refuses_another_tenants_upload(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 1)
    conn.execute("delete from mdm.aa_job")
    enqueue(conn, "bulk_import", {"import_id": str(import_id)}, tenant_id=make_tenant(conn, "other"))
    with refused("MJ005", match="no upload"):
        chunk(conn, claimed_import(conn))


def test_import_chunk_refuses_an_upload_that_is_not_complete(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 1)
    conn.execute("update mdm.aa_import set status = 'uploading' where id = %s", (import_id,))
    with refused("MJ005", match="not complete"):
        chunk(conn, claimed_import(conn))


def test_import_chunk_refuses_another_kinds_job(conn: Connection, tenant: UUID) -> None:
    enqueue(conn, "reindex", tenant_id=tenant)
    claimed = claim_one(conn, "reindex")
    with refused("MJ005", match="no bulk_import"):
        chunk(conn, claimed)


def test_import_chunk_takes_an_import_id_in_upper_case(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload(conn, tenant, thing, [("a", {})])
    finish(conn, claimed_import(conn))
    enqueue(conn, "bulk_import", {"import_id": str(import_id).upper()}, tenant_id=tenant)
    chunk(conn, claimed_import(conn))


@pytest.mark.parametrize("limit", [0, 10_001])
def test_import_chunk_refuses_odd_limits(conn: Connection, tenant: UUID, thing: UUID, limit: int) -> None:
    upload_many(conn, tenant, thing, 1)
    with refused("MJ005"):
        chunk(conn, claimed_import(conn), limit)


def test_fail_import_says_why_and_a_replay_goes_on(conn: Connection, tenant: UUID, thing: UUID) -> None:
    import_id = upload_many(conn, tenant, thing, 15)
    claimed = claimed_import(conn)
    chunk(conn, claimed)
    chunk(conn, claimed, 10)
    call(conn, "fail_import", job_id=claimed["id"], lease_no=claimed["lease_no"], error="disk full")
    kept = the_import(conn, import_id)
    assert (kept["status"], kept["error"], kept["rows_imported"]) == ("failed", "disk full", 10)
    fail(conn, claimed, retryable=False)
    call(conn, "replay_job", job_id=claimed["id"])
    run(conn, claimed_import(conn))
    kept = the_import(conn, import_id)
    assert (kept["status"], kept["error"], kept["rows_imported"]) == ("done", None, 15)
    assert stored(conn, claimed["id"]) == job(conn, claimed["id"])


@pytest.mark.parametrize("references", ["other", "own"])
def test_import_chunk_reads_each_entity_a_few_times_however_many_there_are(
    conn: Connection, tenant: UUID, references: str
) -> None:
    """The plans were made while the table was empty, and it has two indexes that begin with tenant and type."""
    other, own = make_type(conn, "other"), make_type(conn, "own", searchable=["name"])
    conn.execute("vacuum analyze mdm.ddm_entity")
    upload_many(conn, tenant, other, 3000)
    run(conn, claimed_import(conn), 300)
    add_attribute(conn, own, "ref", reference_type_id=other if references == "other" else own)
    for _ in range(2):  # the second pass finds the entities of the first
        upload(conn, tenant, own, [(str(n), {"name": "x", "ref": str(n)}) for n in range(1, 3001)])
        claimed = claimed_import(conn)
        with conn.transaction():
            while not chunk(conn, claimed, 300)[2]:
                pass
            finish(conn, claimed)
            fetched = value(conn, "select idx_tup_fetch from pg_stat_xact_user_tables where relname = 'ddm_entity'")
    assert fetched < 10 * 3000
