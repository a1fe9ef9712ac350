"""enqueue_jobs (S10.1, D6, D14, D15): ord, outcomes, twins, errors that name the element, all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from jobs import (
    Connection,
    actions,
    audit,
    call,
    claim_one,
    enqueue,
    heard,
    job,
    make_job,
    make_kind,
    make_tenant,
    refused,
    snapshot,
    value,
)


def enqueue_many(conn: Connection, *elements: Any, **parameters: Any) -> list[tuple[int, int, str]]:
    """Enqueue elements (reindex unless they say otherwise); (ord, job_id, outcome) in the order of ord."""
    given = [{"job_kind": "reindex", **element} if isinstance(element, dict) else element for element in elements]
    answer = call(conn, "enqueue_jobs", jobs=Jsonb(given), **parameters)
    return sorted((row["ord"], row["job_id"], row["outcome"]) for row in answer)


def test_enqueue_jobs_answers_one_row_per_element(conn: Connection) -> None:
    existing = enqueue(conn, idempotency_key="a")
    made = enqueue_many(
        conn,
        {"payload": {"n": 1}},
        {"idempotency_key": "a"},
        {"idempotency_key": "a", "on_conflict": "update", "payload": {"n": 3}},
        {"idempotency_key": "b"},
        {"payload": {"n": 5}},
    )
    assert [(place, outcome) for place, _, outcome in made] == [
        (1, "inserted"),
        (2, "existing"),
        (3, "updated"),
        (4, "inserted"),
        (5, "inserted"),
    ]
    assert [made[1][1], made[2][1]] == [existing, existing]
    assert job(conn, existing)["payload"] == {"n": 3}
    assert [job(conn, made[place][1])["payload"] for place in (0, 4)] == [{"n": 1}, {"n": 5}]


def test_enqueue_jobs_stores_what_it_is_given(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    element = {
        "job_kind": "email_send",
        "payload": {"to": "a@example.com"},
        "tenant_id": str(tenant_id),
        "priority": -3,
        "available_at": "2031-01-01T00:00:00+02:00",
        "max_attempts": 4,
        "context": {"traceparent": "x"},
    }
    made = enqueue_many(conn, element, {**element, "idempotency_key": "k", "on_conflict": "ignore"})
    plain, keyed = (job(conn, job_id) for _, job_id, _ in made)
    assert keyed["idempotency_key"] == "k"
    for row in (plain, keyed):
        assert (row["job_kind"], row["tenant_id"], row["priority"]) == ("email_send", tenant_id, -3)
        assert (row["payload"], row["context"]) == ({"to": "a@example.com"}, {"traceparent": "x"})
        assert (row["max_attempts"], row["available_at"].isoformat()[:4]) == (4, "2030")


def test_enqueue_jobs_gives_ids_in_the_order_of_the_elements(conn: Connection) -> None:
    made = enqueue_many(conn, *({"payload": {"n": n}, "priority": -n} for n in range(50)))
    ids = [job_id for _, job_id, _ in made]
    assert ids == sorted(ids)
    assert [job(conn, job_id)["payload"]["n"] for job_id in ids] == list(range(50))


@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_twins_in_one_call_are_one_job(conn: Connection, on_conflict: str) -> None:
    twin = {"idempotency_key": "k", "on_conflict": on_conflict}
    [first, second] = enqueue_many(conn, {**twin, "payload": {"n": 1}}, {**twin, "payload": {"n": 2}})
    assert (first[2], second[2]) == ("inserted", "existing" if on_conflict == "ignore" else "updated")
    assert first[1] == second[1]
    assert job(conn, first[1])["payload"] == {"n": 1 if on_conflict == "ignore" else 2}


def test_update_beside_a_running_job_makes_the_next_generation(conn: Connection) -> None:
    running = make_job(conn, "running", idempotency_key="k")
    [(_, newer, outcome)] = enqueue_many(conn, {"idempotency_key": "k", "on_conflict": "update"})
    assert (outcome, job(conn, newer)["key_no"]) == ("inserted", 1)
    assert newer != running["id"]


def test_enqueue_jobs_of_nothing_does_nothing(conn: Connection) -> None:
    assert enqueue_many(conn) == []
    assert snapshot(conn) == []


def test_d13_null_members_are_defaults(conn: Connection) -> None:
    names = (
        "payload",
        "tenant_id",
        "idempotency_key",
        "on_conflict",
        "priority",
        "available_at",
        "max_attempts",
        "context",
    )
    [(_, job_id, _)] = enqueue_many(conn, dict.fromkeys(names), actor_principal_id=None)
    row = job(conn, job_id)
    assert (row["payload"], row["priority"], row["max_attempts"], row["context"]) == ({}, 120, 5, None)
    assert claim_one(conn)["id"] == job_id


def test_d6_null_members_of_an_update_keep_what_the_row_has(conn: Connection) -> None:
    parameters = {"payload": {"a": 1}, "priority": 3, "max_attempts": 2, "context": {"t": 1}}
    [(_, job_id, _)] = enqueue_many(conn, {"idempotency_key": "k", **parameters})
    before = job(conn, job_id)
    enqueue_many(conn, {"idempotency_key": "k", "on_conflict": "update", **dict.fromkeys(parameters)})
    assert job(conn, job_id) == before


@pytest.mark.parametrize(
    ("jobs", "detail"),
    [
        (None, "It is NULL."),
        ("{}", "It is a JSON object."),
        ("null", "It is a JSON null."),
        ('"x"', "It is a JSON string."),
        ("1", "It is a JSON number."),
    ],
)
def test_enqueue_jobs_wants_an_array(conn: Connection, jobs: Any, detail: str) -> None:
    with refused("MJ005", match="p_jobs is not a JSON array", detail=detail):
        call(conn, "enqueue_jobs", jobs=jobs)


@pytest.mark.parametrize(
    ("sqlstate", "message", "element"),
    [
        ("MJ005", "a job is not an object (element 2 of p_jobs)", 5),
        ("MJ005", "a job is not an object (element 2 of p_jobs)", None),
        ("MJ005", "a job is not an object (element 2 of p_jobs)", [{}]),
        ("MJ005", "unknown key 'kind' (element 2 of p_jobs)", {"kind": "reindex"}),
        ("MJ005", "unknown key 'p_priority' (element 2 of p_jobs)", {"p_priority": 1}),
        ("MJ003", "unknown job kind 'nope' (element 2 of p_jobs)", {"job_kind": "nope"}),
        ("MJ003", "unknown job kind NULL (element 2 of p_jobs)", {"job_kind": None}),
        ("MJ003", "job kind index_sync is disabled (element 2 of p_jobs)", {"job_kind": "index_sync"}),
        ("MJ005", "payload is a JSON array, not an object (element 2 of p_jobs)", {"payload": [1]}),
        ("MJ005", "payload is a JSON string, not an object (element 2 of p_jobs)", {"payload": "x"}),
        ("MJ005", "job kind email_send needs a tenant (element 2 of p_jobs)", {"job_kind": "email_send"}),
        ("MJ005", "unknown tenant", {"tenant_id": str(uuid4())}),
        ("MJ005", "idempotency key of 0 bytes (element 2 of p_jobs)", {"idempotency_key": ""}),
        ("MJ005", "idempotency key of 256 bytes (element 2 of p_jobs)", {"idempotency_key": "x" * 256}),
        ("MJ005", "on_conflict is 'replace' (element 2 of p_jobs)", {"on_conflict": "replace"}),
        ("MJ005", "max_attempts is 0 (element 2 of p_jobs)", {"max_attempts": 0}),
        ("MJ005", "is out of range (element 2 of p_jobs)", {"available_at": "infinity"}),
        ("MJ005", "is out of range (element 2 of p_jobs)", {"available_at": "1969-12-31T00:00:00Z"}),
        ("MJ005", "payload of 17000", {"payload": {"a": "x" * 17000000}}),
        ("MJ005", "context of 70", {"context": {"a": "x" * 70000}}),
        ("MJ005", "wrong type", {"priority": 2**31}),
        ("MJ005", "wrong type", {"priority": 1.5}),
        ("MJ005", "wrong type", {"max_attempts": "many"}),
        ("MJ005", "wrong type", {"tenant_id": "no uuid"}),
        ("MJ005", "wrong type", {"available_at": "soon"}),
        ("MJ005", "wrong type", {"available_at": "999999-01-01"}),
    ],
)
def test_enqueue_jobs_is_all_or_nothing(conn: Connection, sqlstate: str, message: str, element: Any) -> None:
    make_kind(conn, "index_sync", enabled=False)
    before = snapshot(conn)
    with refused(sqlstate, match=message):
        enqueue_many(conn, {}, element, {"idempotency_key": "k"})
    assert snapshot(conn) == before


def test_enqueue_jobs_names_the_first_bad_element(conn: Connection) -> None:
    with refused("MJ005", match="(element 2 of p_jobs)"):
        enqueue_many(conn, {}, {"max_attempts": 0}, {"job_kind": "nope"})


def test_enqueue_jobs_is_audited_like_enqueue_job(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    made = enqueue_many(
        conn,
        {"tenant_id": str(tenant_id)},
        {"idempotency_key": "k"},
        {"idempotency_key": "k"},
        {"idempotency_key": "k", "on_conflict": "update"},
        {"job_kind": "cleanup_jobs"},
        {"job_kind": "cleanup_jobs", "idempotency_key": "k"},
    )
    [row] = audit(conn, made[0][1])
    assert (row["action"], row["tenant_id"], row["payload"]) == ("job_enqueued", tenant_id, {"job_kind": "reindex"})
    assert actions(conn, made[1][1]) == ["job_enqueued", "job_enqueued"]
    assert actions(conn, made[4][1]) + actions(conn, made[5][1]) == []


def test_enqueue_jobs_notifies_each_kind_once_when_hungry(conn: Connection, connect: Callable[..., Connection]) -> None:
    listener = connect()
    listener.execute("listen mdm_jobs")
    enqueue_many(conn, {})
    call(conn, "announce_runner", runner_id="r1", kinds=["reindex", "cleanup_jobs"])
    enqueue_many(conn, {}, {}, {"job_kind": "cleanup_jobs", "idempotency_key": "k"}, {"job_kind": "index_sync"})
    assert sorted(heard(conn, listener)) == ["cleanup_jobs", "reindex"]


def test_enqueue_jobs_of_10000_jobs_at_once(conn: Connection) -> None:
    assert len(enqueue_many(conn, *[{}] * 10000)) == 10000
    assert value(conn, "select count(*) from mdm.aa_audit_log where action = 'job_enqueued'") == 10000
