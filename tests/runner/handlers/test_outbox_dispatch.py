"""The kind outbox_dispatch against a real HTTP server (S2.4; faults B110 to B112)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from jobrunner.demo.hooks import Hooks, answer, hooks
from jobrunner.errors import Snooze
from jobrunner.handlers.outbox_dispatch import outbox_dispatch
from jobs import Connection, Row, age, claim, claim_one, enqueue, fail, job, make_due, make_tenant, recover
from lent import LeaseLost, run
from outbox import (
    all_due,
    deliveries,
    due_jobs,
    endpoint,
    make_endpoint,
    make_event,
    make_events,
    states,
    undispatched,
)


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    monkeypatch.setenv("JOBRUNNER_WEBHOOK_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("JOBRUNNER_WEBHOOK_TIMEOUT_SECONDS", "20")
    with hooks() as consumer:
        yield consumer


def claimed_dispatch(conn: Connection) -> Row:
    """Claim the first outbox_dispatch."""
    return claim_one(conn, "outbox_dispatch")


def test_outbox_dispatch_delivers_everything_signed_and_once(conn: Connection, tenant: UUID, consumer: Hooks) -> None:
    make_endpoint(conn, tenant, consumer.url())
    make_endpoint(conn, tenant, consumer.url("/created"), "entity.created")
    make_events(conn, tenant, 50)
    event_id = make_event(conn, tenant, "entity.created", {"name": "ä"})
    claimed = claimed_dispatch(conn)
    run(outbox_dispatch, conn, claimed)
    assert len(consumer.ids()) == len(set(consumer.ids())) == 51
    [one] = [one for one in consumer.received if one.path == "/created"]
    assert one.webhook_id == one.body["id"] == f"evt_{event_id}"
    assert (one.body["type"], one.body["data"], one.body["tenant_id"]) == ("entity.created", {"name": "ä"}, str(tenant))
    assert set(states(conn)) == {"delivered"}
    assert undispatched(conn) == 0
    assert job(conn, claimed["id"])["status"] == "done"
    assert max(consumer.at_once.values()) <= 4


def test_outbox_dispatch_without_work_is_a_cheap_success(conn: Connection, tenant: UUID, consumer: Hooks) -> None:
    enqueue(conn, "outbox_dispatch")
    assert run(outbox_dispatch, conn, claimed_dispatch(conn)).chunks == 1
    assert due_jobs(conn) == 0


def test_outbox_dispatch_enqueues_the_next_run_for_what_failed(conn: Connection, tenant: UUID, consumer: Hooks) -> None:
    consumer.answers["/ok"] = answer(500, b"sorry")
    make_endpoint(conn, tenant, consumer.url())
    make_event(conn, tenant)
    run(outbox_dispatch, conn, claimed_dispatch(conn))
    [row] = deliveries(conn)
    assert (row["status"], row["response_status"], row["last_error"]) == ("failed", 500, "HTTP 500: sorry")
    assert due_jobs(conn) == 1
    assert claim(conn, "outbox_dispatch") == []  # in ten seconds
    del consumer.answers["/ok"]
    all_due(conn)
    enqueue(conn, "outbox_dispatch")
    run(outbox_dispatch, conn, claimed_dispatch(conn))
    assert consumer.ids() == [f"evt_{row['event_id']}"] * 2
    assert states(conn) == ["delivered"]


def test_b110_outbox_dispatch_counts_a_redirect_as_failed(conn: Connection, tenant: UUID, consumer: Hooks) -> None:
    with hooks() as canary:
        consumer.answers["/ok"] = answer(302, location=canary.url())
        make_endpoint(conn, tenant, consumer.url())
        make_event(conn, tenant)
        run(outbox_dispatch, conn, claimed_dispatch(conn))
        assert canary.received == []
    assert states(conn) == ["failed"]


def test_b113_outbox_dispatch_reaches_no_private_address(
    conn: Connection, tenant: UUID, consumer: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBRUNNER_WEBHOOK_ALLOW")
    make_endpoint(conn, tenant, consumer.url())
    make_event(conn, tenant)
    run(outbox_dispatch, conn, claimed_dispatch(conn))
    assert consumer.received == []
    assert "not a public address" in deliveries(conn)[0]["last_error"]


def test_outbox_dispatch_that_crashes_repeats_nothing_that_was_recorded(
    conn: Connection, tenant: UUID, consumer: Hooks
) -> None:
    made = make_endpoint(conn, tenant, consumer.url())
    make_events(conn, tenant, 30)
    first = claimed_dispatch(conn)

    def die(chunk: int) -> None:
        if chunk == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(outbox_dispatch, conn, first, before_commit=die)
    recorded = {f"evt_{row['event_id']}" for row in deliveries(conn) if row["status"] == "delivered"}
    before = len(consumer.received)
    assert 0 < len(recorded) < 30
    age(conn, first["id"])
    assert recover(conn) == {first["id"]: "pending"}
    make_due(conn, first["id"])
    run(outbox_dispatch, conn, claimed_dispatch(conn))
    assert not recorded & {one.webhook_id for one in consumer.received[before:]}
    assert len(set(consumer.ids())) == 30
    assert before + 30 - len(recorded) == len(consumer.received) <= 30 + 8
    assert (set(states(conn)), endpoint(conn, made)["failures"]) == ({"delivered"}, 0)


def test_outbox_dispatch_of_a_zombie_records_nothing(conn: Connection, tenant: UUID, consumer: Hooks) -> None:
    make_endpoint(conn, tenant, consumer.url())
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)

    def lose(chunk: int) -> None:
        if chunk == 1:
            consumer.answers["/ok"] = lambda request: (fail_elsewhere(), answer(204)(request))[-1]

    def fail_elsewhere() -> None:
        import psycopg

        with psycopg.connect(conn.info.dsn, autocommit=True) as other:
            fail(other, claimed)

    with pytest.raises(LeaseLost):
        run(outbox_dispatch, conn, claimed, before_commit=lose)
    assert states(conn) == ["pending"]


@pytest.mark.parametrize("path", ["/silent", "/closed"])
def test_b111_outbox_dispatch_pauses_an_endpoint_without_an_answer(
    conn: Connection, tenant: UUID, consumer: Hooks, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBRUNNER_WEBHOOK_TIMEOUT_SECONDS", "1.5")
    consumer.answers["/silent"] = lambda request: (consumer.over.wait(30), None)[-1]
    url = consumer.url(path) if path == "/silent" else "http://127.0.0.1:1/"
    dead = make_endpoint(conn, tenant, url)
    make_endpoint(conn, tenant, consumer.url())
    make_events(conn, tenant, 20)
    run(outbox_dispatch, conn, claimed_dispatch(conn))
    assert len(consumer.ids()) == 20
    tried = [row["attempts"] for row in deliveries(conn) if row["endpoint_id"] == dead]
    assert sum(tried) <= 8
    assert endpoint(conn, dead)["paused_until"] is not None


@pytest.mark.parametrize("wrong", [{"ALLOW": "here"}, {"PER_ENDPOINT": "none"}])
def test_outbox_dispatch_with_wrong_settings_gives_the_job_back(
    conn: Connection, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    for name, value in wrong.items():
        monkeypatch.setenv(f"JOBRUNNER_WEBHOOK_{name}", value)
    enqueue(conn, "outbox_dispatch")
    with pytest.raises(Snooze, match="JOBRUNNER_WEBHOOK"):
        run(outbox_dispatch, conn, claimed_dispatch(conn))
