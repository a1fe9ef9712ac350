"""enqueue_job (S2, S10.1, D6, D11, D13, D14, D15)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from jobs import (
    STATES,
    Connection,
    actions,
    age,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    heard,
    job,
    make_job,
    make_kind,
    make_tenant,
    recover,
    refused,
    release,
    rows,
    snapshot,
    status,
    value,
    violations,
)


def unchanged(conn: Connection) -> bool:
    return snapshot(conn) == []


def test_enqueue_job_stores_what_it_is_given(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    due = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    job_id = enqueue(
        conn,
        "email_send",
        {"to": ["a@example.com"], "n": 1},
        tenant_id=tenant_id,
        idempotency_key="k",
        priority=-7,
        available_at=due,
        max_attempts=3,
        context=Jsonb({"traceparent": "00-1"}),
    )
    row = job(conn, job_id)
    created_at = row.pop("created_at")
    assert abs(created_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert row == {
        "id": job_id,
        "tenant_id": tenant_id,
        "job_kind": "email_send",
        "status": "pending",
        "priority": -7,
        "available_at": due,
        "payload": {"to": ["a@example.com"], "n": 1},
        "context": {"traceparent": "00-1"},
        "attempts": 0,
        "max_attempts": 3,
        "idempotency_key": "k",
        "key_no": 0,
        "lease_no": None,
        "claimed_by": None,
        "claimed_at": None,
        "heartbeat_at": None,
        "claimed_together": None,
        "run_alone": False,
        "releases": 0,
        "recoveries": 0,
        "last_error": None,
        "completed_at": None,
    }


@pytest.mark.parametrize("key", [None, "k"])
def test_d13_enqueue_job_takes_null_as_default(conn: Connection, key: str | None) -> None:
    names = ("payload", "tenant_id", "on_conflict", "priority", "available_at", "max_attempts", "context")
    [row] = call(
        conn,
        "enqueue_job",
        job_kind="reindex",
        idempotency_key=key,
        actor_principal_id=None,
        **dict.fromkeys(names),
    )
    stored = job(conn, row["enqueue_job"])
    assert (stored["payload"], stored["priority"], stored["max_attempts"]) == ({}, 120, 5)
    assert stored["available_at"] <= value(conn, "select clock_timestamp()")
    assert stored["context"] is None


@pytest.mark.parametrize("state", ["pending", "done"])
def test_d13_null_on_conflict_is_ignore(conn: Connection, state: str) -> None:
    made = make_job(conn, state, payload={"n": 1}, idempotency_key="k")
    assert enqueue(conn, payload={"n": 2}, idempotency_key="k", on_conflict=None) == made["id"]
    assert job(conn, made["id"]) == made


@pytest.mark.parametrize("key", [None, "k"])
def test_d13_enqueue_job_needs_nothing_but_a_kind(conn: Connection, key: str | None) -> None:
    job_id = value(conn, "select mdm.enqueue_job('cleanup_jobs', p_idempotency_key => %s)", key)
    assert (job(conn, job_id)["priority"], job(conn, job_id)["max_attempts"]) == (10, 3)


@pytest.mark.parametrize(
    ("parameters", "column", "stored"),
    [
        ({"priority": 2**31 - 1}, "priority", 2**31 - 1),
        ({"priority": -(2**31)}, "priority", -(2**31)),
        ({"max_attempts": 1}, "max_attempts", 1),
        ({"max_attempts": 2**31 - 1}, "max_attempts", 2**31 - 1),
        ({"available_at": "1970-01-01 00:00+00"}, "available_at", datetime(1970, 1, 1, tzinfo=UTC)),
        (
            {"available_at": "9999-12-30 23:59:59+00"},
            "available_at",
            datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC),
        ),
        ({"context": Jsonb([1])}, "context", [1]),
    ],
)
def test_enqueue_job_accepts_the_limits(conn: Connection, parameters: Any, column: str, stored: Any) -> None:
    conn.execute("set timezone = 'UTC'")
    assert job(conn, enqueue(conn, **parameters))[column] == stored


@pytest.mark.parametrize(
    ("sqlstate", "message", "parameters"),
    [
        ("MJ003", "unknown job kind 'nope'", {"job_kind": "nope"}),
        ("MJ003", "unknown job kind NULL", {"job_kind": None}),
        ("MJ003", "unknown job kind 'Reindex'", {"job_kind": "Reindex"}),
        ("MJ005", "job kind email_send needs a tenant", {"job_kind": "email_send"}),
        ("MJ005", "job kind bulk_import needs a tenant", {"job_kind": "bulk_import"}),
        ("MJ005", "job kind virus_scan needs a tenant", {"job_kind": "virus_scan"}),
        ("MJ005", "unknown tenant ", {"tenant_id": uuid4()}),
        ("MJ005", "on_conflict is 'replace'", {"on_conflict": "replace"}),
        ("MJ005", "on_conflict is 'IGNORE'", {"on_conflict": "IGNORE", "idempotency_key": "k"}),
        ("MJ005", "max_attempts is 0", {"max_attempts": 0}),
        ("MJ005", "max_attempts is -2147483648", {"max_attempts": -(2**31)}),
        ("MJ005", "available_at infinity is out of range", {"available_at": "infinity"}),
        ("MJ005", "available_at -infinity is out of range", {"available_at": "-infinity"}),
        ("MJ005", "is out of range", {"available_at": "1969-12-31 23:59:59+00"}),
        ("MJ005", "is out of range", {"available_at": "9999-12-31 00:00+00"}),
        ("MJ005", "is out of range", {"available_at": "294276-01-01 00:00+00", "idempotency_key": "k"}),
    ],
)
def test_enqueue_job_refuses(conn: Connection, sqlstate: str, message: str, parameters: Any) -> None:
    with refused(sqlstate, match=message):
        call(conn, "enqueue_job", **{"job_kind": "reindex", **parameters})
    assert unchanged(conn)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    ("payload", "type_name"),
    [("null", "null"), ("[1]", "array"), ('"x"', "string"), ("7", "number"), ("true", "boolean")],
)
def test_b16_payload_that_is_no_object_is_refused(
    conn: Connection, payload: str, type_name: str, key: str | None
) -> None:
    with refused("MJ005", match=f"payload is a JSON {type_name}, not an object"):
        call(conn, "enqueue_job", job_kind="reindex", payload=payload, idempotency_key=key)
    assert unchanged(conn)


def test_payload_of_16_mib_is_the_limit(conn: Connection) -> None:
    # the object of one string needs 16 bytes beside it
    query = "select mdm.enqueue_job('reindex', jsonb_build_object('a', repeat('x', %s)))"
    assert value(conn, query, (1 << 24) - 64) > 0
    with refused("MJ005", match="is too large"):
        conn.execute(query, ((1 << 24) + 1,))


@pytest.mark.parametrize("key", [None, "k"])
def test_context_of_64_kib_is_the_limit(conn: Connection, key: str | None) -> None:
    query = (
        "select mdm.enqueue_job('reindex', p_idempotency_key => %s,"
        " p_context => jsonb_build_object('a', repeat('x', %s)), p_on_conflict => 'update')"
    )
    assert value(conn, query, key, (1 << 16) - 64) > 0
    with refused("MJ005", match="context of 65"):
        conn.execute(query, (key, 1 << 16))


def test_payload_of_300_mb_is_refused(conn: Connection) -> None:
    with pytest.raises(psycopg.Error) as raised:
        conn.execute("select mdm.enqueue_job('reindex', jsonb_build_object('a', repeat('x', 300000000)))")
    assert raised.value.sqlstate == "54000"  # by jsonb itself: a string has at most 256 MiB
    assert unchanged(conn)


@pytest.mark.parametrize("payload", ['{"a": "\\u0000"}', '{"\\u0000": 1}', '{"a": ["x\\u0000y"]}'])
def test_b86_nul_in_json_is_refused_and_leaves_nothing(
    connect: Callable[..., Connection], conn: Connection, payload: str
) -> None:
    producer = connect(autocommit=False)
    producer.execute("insert into mdm.aa_tenant values (gen_random_uuid())")
    with pytest.raises(psycopg.Error) as raised:
        call(producer, "enqueue_job", job_kind="reindex", payload=payload)
    assert raised.value.sqlstate == "22P05"
    producer.rollback()
    assert unchanged(conn)
    assert value(conn, "select count(*) from mdm.aa_tenant") == 0


# ---- idempotency keys (S10.1, D6)

NFC, NFD = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")


@pytest.mark.parametrize("key", ["a", "x" * 255, "é" * 127, "   ", NFC, NFD, "ab" * 127])
def test_b36_key_of_1_to_255_bytes_is_accepted(conn: Connection, key: str) -> None:
    assert job(conn, enqueue(conn, idempotency_key=key))["idempotency_key"] == key


@pytest.mark.parametrize(
    ("key", "size"),
    [("", 0), ("x" * 256, 256), ("é" * 128, 256), ("0123456789abcdef" * 200, 3200), ("a" * 200000, 200000)],
)
def test_b36_key_of_other_lengths_is_refused(conn: Connection, key: str, size: int) -> None:
    with refused("MJ005", match=f"idempotency key of {size} bytes"):
        enqueue(conn, idempotency_key=key)
    assert unchanged(conn)


def test_b36_key_with_nul_never_reaches_the_server(conn: Connection) -> None:
    with pytest.raises(psycopg.DataError):
        enqueue(conn, idempotency_key="a\x00b")


def test_b36_keys_in_nfc_and_nfd_are_two_keys(conn: Connection) -> None:
    assert enqueue(conn, idempotency_key=NFC) != enqueue(conn, idempotency_key=NFD)


def test_b35_key_is_scoped_to_tenant_and_kind(conn: Connection) -> None:
    first, second = make_tenant(conn), make_tenant(conn)
    for kind in ("c", "b|c".replace("|", ".")):
        make_kind(conn, kind)
    made = [
        enqueue(conn, idempotency_key="k"),
        enqueue(conn, idempotency_key="k", tenant_id=first),
        enqueue(conn, idempotency_key="k", tenant_id=second),
        enqueue(conn, "cleanup_jobs", idempotency_key="k", tenant_id=first),
        enqueue(conn, "c", idempotency_key="a.b"),
        enqueue(conn, "b.c", idempotency_key="a"),
    ]
    assert len(set(made)) == len(made)
    assert enqueue(conn, idempotency_key="k") == made[0]
    assert enqueue(conn, idempotency_key="k", tenant_id=second) == made[2]


def test_null_keys_are_all_different(conn: Connection) -> None:
    assert enqueue(conn) != enqueue(conn)


def test_update_takes_payload_priority_time_and_context(conn: Connection) -> None:
    due = datetime(2040, 1, 1, tzinfo=UTC)
    job_id = enqueue(conn, payload={"a": 1}, idempotency_key="k", max_attempts=2)
    again = enqueue(
        conn,
        payload={"b": 2},
        idempotency_key="k",
        on_conflict="update",
        priority=1,
        available_at=due,
        max_attempts=9,
        context=Jsonb({"t": 1}),
    )
    row = job(conn, again)
    assert again == job_id
    assert (row["payload"], row["priority"], row["available_at"]) == ({"b": 2}, 1, due)
    assert (row["max_attempts"], row["context"], row["key_no"]) == (9, {"t": 1}, 0)


def test_update_with_nulls_keeps_what_the_row_has(conn: Connection) -> None:
    due = datetime(2040, 1, 1, tzinfo=UTC)
    job_id = enqueue(
        conn,
        payload={"a": 1},
        idempotency_key="k",
        priority=3,
        available_at=due,
        max_attempts=2,
        context=Jsonb({"t": 1}),
    )
    before = job(conn, job_id)
    call(conn, "enqueue_job", job_kind="reindex", payload=None, idempotency_key="k", on_conflict="update")
    assert job(conn, job_id) == before


def test_update_keeps_the_time_of_a_retry(conn: Connection) -> None:
    claimed = make_job(conn, "running", idempotency_key="k")
    fail(conn, claimed)
    retry_at = job(conn, claimed["id"])["available_at"]
    enqueue(conn, payload={"b": 2}, idempotency_key="k", on_conflict="update", available_at="2040-01-01 00:00+00")
    row = job(conn, claimed["id"])
    assert (row["payload"], row["available_at"], row["attempts"]) == ({"b": 2}, retry_at, 1)


def test_update_takes_the_time_of_a_released_job(conn: Connection) -> None:
    claimed = make_job(conn, "running", idempotency_key="k")
    release(conn, claimed)
    enqueue(conn, idempotency_key="k", on_conflict="update", available_at="2040-01-01 00:00+00")
    assert job(conn, claimed["id"])["available_at"] == datetime(2040, 1, 1, tzinfo=UTC)


def test_update_leaves_an_attempt_whatever_the_new_limit(conn: Connection) -> None:
    claimed = make_job(conn, "running", idempotency_key="k", max_attempts=5)
    fail(conn, claimed)
    enqueue(conn, idempotency_key="k", on_conflict="update", max_attempts=1)
    assert job(conn, claimed["id"])["max_attempts"] == 2
    assert violations(conn) == {}


def test_b37_one_rule_for_a_key_whose_job_has_ended(conn: Connection) -> None:
    """`ignore` gives the newest job while it lives, `update` a new one unless it is pending; gone = free again."""
    for state in STATES:
        key = f"k-{state}"
        old = make_job(conn, state, idempotency_key=key)["id"]
        conn.execute("update mdm.aa_job set available_at = '2090-01-01' where status = 'pending'")
        assert enqueue(conn, idempotency_key=key) == old
        newer = enqueue(conn, idempotency_key=key, on_conflict="update", available_at="2090-01-01 00:00+00")
        assert (newer == old) is (state == "pending")
        assert enqueue(conn, idempotency_key=key) == newer
        assert call(conn, "get_job", job_id=old)[0]["status"] == state
        call(conn, "discard_job", job_id=newer)
        if state == "pending":
            assert enqueue(conn, idempotency_key=key, available_at="2090-01-01 00:00+00") != old


def test_generations_count_up(conn: Connection) -> None:
    made = []
    for number in range(4):
        made.append(enqueue(conn, payload={"n": number}, idempotency_key="k", on_conflict="update"))
        assert job(conn, made[-1])["key_no"] == number
        claim_one(conn)
    assert [job(conn, job_id)["status"] for job_id in made] == ["running"] * 4
    assert len(set(made)) == 4


def test_only_the_newest_generation_is_retried(conn: Connection) -> None:
    old = make_job(conn, "running", idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update")
    fail(conn, old)
    assert job(conn, old["id"])["last_error"] == f"superseded by {newer}"
    claimed = claim_one(conn)
    assert claimed["id"] == newer
    fail(conn, claimed)
    assert status(conn, newer) == "pending"


def test_superseded_at_the_claim(conn: Connection) -> None:
    """A retry that was put back while its successor was not yet committed ends when it is claimed."""
    old = make_job(conn, "running", idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update")
    conn.execute(
        "update mdm.aa_job set status = 'pending', claimed_by = null, claimed_at = null where id = %s", (old["id"],)
    )
    other = enqueue(conn)
    assert [row["id"] for row in claim(conn, limit=2)] == [newer, other]
    assert (status(conn, old["id"]), job(conn, old["id"])["last_error"]) == ("done", f"superseded by {newer}")
    assert actions(conn, old["id"]) == ["job_enqueued", "job_done"]


def test_key_of_a_purged_job_is_free(conn: Connection) -> None:
    old = make_job(conn, "done", idempotency_key="k")
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01'")
    call(conn, "purge_jobs")
    assert enqueue(conn, idempotency_key="k") != old["id"]


# ---- audit (S11, D11, D15)


def test_enqueue_job_is_audited_once(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    job_id = enqueue(conn, tenant_id=tenant_id)
    keyed_id = enqueue(conn, tenant_id=tenant_id, idempotency_key="k")
    [row], [keyed] = audit(conn, job_id), audit(conn, keyed_id)
    assert (row["action"], row["object_type"], row["tenant_id"]) == ("job_enqueued", "job", tenant_id)
    assert row["payload"] == {"job_kind": "reindex"}
    assert keyed["payload"] == {"job_kind": "reindex", "idempotency_key": "k"}
    assert row["session_role"] == conn.info.user
    assert row["occurred_at"] == job(conn, job_id)["created_at"]


def test_enqueue_job_rolled_back_leaves_no_audit(conn: Connection, connect: Callable[..., Connection]) -> None:
    producer = connect(autocommit=False)
    enqueue(producer)
    enqueue(producer, idempotency_key="k")
    producer.rollback()
    assert unchanged(conn)


@pytest.mark.parametrize("key", [None, "k"])
def test_d15_exceptions_kind_is_not_audited_at_enqueue(conn: Connection, key: str | None) -> None:
    job_id = enqueue(conn, "cleanup_jobs", idempotency_key=key)
    enqueue(conn, "cleanup_jobs", idempotency_key=key, on_conflict="update")
    assert audit(conn, job_id) == []


# ---- registry (D14)


def test_d14_disabled_kind_is_refused_and_worked_off(conn: Connection) -> None:
    queued = enqueue(conn)
    make_kind(conn, "reindex", enabled=False)
    with refused("MJ003", match="job kind reindex is disabled"):
        enqueue(conn)
    claimed = claim_one(conn)
    assert claimed["id"] == queued
    finish(conn, claimed)


def test_d14_new_kind_has_the_defaults_of_the_specification(conn: Connection) -> None:
    make_kind(conn, "brand_new")
    row = job(conn, enqueue(conn, "brand_new"))
    assert (row["priority"], row["max_attempts"], row["tenant_id"]) == (100, 10, None)


def test_enqueue_job_into_a_paused_kind_works(conn: Connection) -> None:
    call(conn, "pause_kind", job_kind="reindex")
    job_id = enqueue(conn)
    assert claim(conn) == []
    call(conn, "resume_kind", job_kind="reindex")
    assert claim_one(conn)["id"] == job_id


# ---- wake-ups (design 5.5)


@pytest.fixture
def listener(connect: Callable[..., Connection]) -> Connection:
    connection: Connection = connect()
    connection.execute("listen mdm_jobs")
    return connection


def announce(conn: Connection, kinds: list[str], **parameters: Any) -> None:
    call(conn, "announce_runner", runner_id="r1", kinds=kinds, **parameters)


@pytest.mark.parametrize("key", [None, "k"])
def test_enqueue_job_notifies_a_hungry_runner(conn: Connection, listener: Connection, key: str | None) -> None:
    announce(conn, ["cleanup_jobs", "reindex"])
    enqueue(conn, idempotency_key=key)
    assert heard(conn, listener) == ["reindex"]


@pytest.mark.parametrize("parameters", [{"hungry": False}, {"tenant_ids": [uuid4()]}, {"kinds": ["cleanup_jobs"]}])
def test_enqueue_job_leaves_runners_alone_that_want_nothing(
    conn: Connection, listener: Connection, parameters: Any
) -> None:
    announce(conn, **{"kinds": ["reindex"], **parameters})
    enqueue(conn)
    assert heard(conn, listener) == []


def test_enqueue_job_notifies_nobody_without_runners(conn: Connection, listener: Connection) -> None:
    enqueue(conn)
    assert heard(conn, listener) == []


def test_enqueue_job_forgets_a_runner_that_expired(conn: Connection, listener: Connection) -> None:
    announce(conn, ["reindex"])
    conn.execute("update mdm.aa_job_runner set expires_at = clock_timestamp()")
    enqueue(conn)
    assert heard(conn, listener) == []


def test_enqueue_job_notifies_a_runner_of_its_tenant(conn: Connection, listener: Connection) -> None:
    tenant_id = make_tenant(conn)
    announce(conn, ["reindex"], tenant_ids=[tenant_id])
    enqueue(conn, tenant_id=tenant_id)
    assert heard(conn, listener) == ["reindex"]


def test_enqueue_job_notifies_not_for_later_and_not_for_existing_jobs(conn: Connection, listener: Connection) -> None:
    enqueue(conn, idempotency_key="k")
    announce(conn, ["reindex"])
    enqueue(conn, available_at=datetime(2090, 1, 1, tzinfo=UTC))
    enqueue(conn, idempotency_key="k")
    assert heard(conn, listener) == []


# ---- subtransactions (B121) and ids (B88)


def test_b121_1500_enqueues_need_no_subtransaction(conn: Connection, connect: Callable[..., Connection]) -> None:
    """A row that a subtransaction wrote would carry its number."""
    producer = connect(autocommit=False)
    for number in range(500):
        enqueue(producer)
        enqueue(producer, idempotency_key=f"k{number}")
        enqueue(producer, idempotency_key=f"k{number}")
    producer.commit()
    query = """
        select count(*), count(distinct w.xmin::text)
        from (select xmin from mdm.aa_job union all select xmin from mdm.aa_audit_log) w
    """
    assert conn.execute(query).fetchall() == [(2000, 1)]


def test_b88_ids_beyond_2_31_live_a_whole_life(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    conn = connect(dsn=fresh_dsn)
    conn.execute("alter table mdm.aa_job alter id restart with 2147483646")
    single, keyed = enqueue(conn), enqueue(conn, idempotency_key="k")
    made = call(
        conn, "enqueue_jobs", jobs=Jsonb([{"job_kind": "reindex"}, {"job_kind": "reindex"}, {"job_kind": "reindex"}])
    )
    everything = [single, keyed, *(row["job_id"] for row in made)]
    assert everything == list(range(2147483646, 2147483651))
    claimed = claim(conn, limit=4)
    leases = {"job_ids": [row["id"] for row in claimed], "lease_nos": [row["lease_no"] for row in claimed]}
    assert all(row["alive"] for row in call(conn, "extend_jobs", **leases))
    assert call(conn, "finish_jobs", job_ids=leases["job_ids"][:1], lease_nos=leases["lease_nos"][:1])
    assert call(conn, "release_jobs", job_ids=leases["job_ids"][1:2], lease_nos=leases["lease_nos"][1:2])
    fail(conn, claimed[2], retryable=False)
    age(conn, claimed[3]["id"])
    assert recover(conn) == {2147483649: "pending"}
    assert call(conn, "replay_job", job_id=claimed[2]["id"]) == [{"replay_job": "replayed"}]
    assert call(conn, "stop_job", job_id=claimed[2]["id"]) == [{"stop_job": "stopped"}]
    assert call(conn, "discard_job", job_id=claimed[2]["id"]) == [{"discard_job": "discarded"}]
    for _ in range(2):
        finish(conn, claim_one(conn))
    last = claim_one(conn)
    call(conn, "check_lease", job_id=last["id"], lease_no=last["lease_no"])
    fail(conn, last, retryable=False)
    assert [row["id"] for row in rows(conn, "select id from mdm.v_job_dlq")] == [2147483650]
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01' where status = 'done'")
    assert value(conn, "select mdm.purge_jobs()") == 3
    assert violations(conn) == {}
