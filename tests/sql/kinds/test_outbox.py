"""The database half of outbox_dispatch (S2.4): trigger, deliveries, caps, replay, wake-up (faults B111, B112)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs import (
    Connection,
    Row,
    age,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    finish,
    job,
    make_kind,
    make_tenant,
    recover,
    refused,
    rows,
    value,
)
from outbox import (
    all_due,
    deliveries,
    due_jobs,
    endpoint,
    make_endpoint,
    make_event,
    make_events,
    states,
    store,
    take,
    undispatched,
)

Connect = Callable[..., Connection]


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn, "one")


def claimed_dispatch(conn: Connection, worker_id: str = "w1") -> Row:
    """Enqueue an outbox_dispatch of its own and claim it."""
    enqueue(conn, "outbox_dispatch", priority=1)
    return claim_one(conn, "outbox_dispatch", worker_id=worker_id)


def next_run(conn: Connection, claimed: Row) -> Any:
    return call(conn, "enqueue_next_dispatch", job_id=claimed["id"], lease_no=claimed["lease_no"])[0][
        "enqueue_next_dispatch"
    ]


# -- trigger


def test_each_statement_enqueues_one_job_without_a_key(conn: Connection, connect: Connect, tenant: UUID) -> None:
    other = connect(autocommit=False)
    make_events(other, tenant, 5)
    assert due_jobs(conn) == 0
    make_event(conn, tenant)  # waits for nobody
    other.commit()
    assert due_jobs(conn) == 2
    assert value(conn, "select count(*) from mdm.aa_job where idempotency_key is not null") == 0


def test_events_that_are_rolled_back_leave_no_job(conn: Connection, connect: Connect, tenant: UUID) -> None:
    other = connect(autocommit=False)
    make_event(other, tenant)
    other.rollback()
    assert (due_jobs(conn), undispatched(conn)) == (0, 0)


def test_the_trigger_needs_no_right_to_enqueue(conn: Connection, connect: Connect, tenant: UUID) -> None:
    make_event(connect(role="mdm_platform"), tenant)
    assert due_jobs(conn) == 1


# -- planning and taking


def test_claim_deliveries_plans_one_for_each_endpoint_that_wants_the_event(conn: Connection, tenant: UUID) -> None:
    everything = make_endpoint(conn, tenant)
    some = make_endpoint(conn, tenant, "http://127.0.0.1/", "entity.created", "entity.deleted")
    disabled = make_endpoint(conn, tenant)
    conn.execute("update mdm.aa_webhook_endpoint set enabled = false where id = %s", (disabled,))
    make_endpoint(conn, make_tenant(conn, "other"))
    updated, created = make_event(conn, tenant), make_event(conn, tenant, "entity.created")
    taken = take(conn, claimed_dispatch(conn))
    wanted = {(updated, everything), (created, everything), (created, some)}
    assert {(one["event_id"], one["endpoint_id"]) for one in taken} == wanted
    assert take(conn, claimed_dispatch(conn)) == []


def test_claim_deliveries_ends_events_that_nobody_wants(conn: Connection, tenant: UUID) -> None:
    make_event(conn, tenant)
    make_event(conn, None)
    assert take(conn, claimed_dispatch(conn)) == []
    assert undispatched(conn) == 0


def test_claim_deliveries_gives_what_is_to_be_posted(conn: Connection, connect: Connect, tenant: UUID) -> None:
    make_endpoint(conn, tenant, "https://consumer.example/hook")
    event_id = make_event(conn, tenant, payload={"n": 12345678901234567890, "t": "ä"})
    [one] = take(connect(role="mdm_worker"), claimed_dispatch(conn))
    assert (one["url"], one["webhook_id"]) == ("https://consumer.example/hook", f"evt_{event_id}")
    assert '"data": {"n": 12345678901234567890, "t": "ä"}' in one["body"]
    assert f'"tenant_id": "{tenant}"' in one["body"]
    assert '"type": "entity.updated"' in one["body"]


def test_b112_events_that_commit_late_are_not_skipped(conn: Connection, connect: Connect, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    late = connect(autocommit=False)
    first = make_event(late, tenant)
    second = make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    assert [one["event_id"] for one in take(conn, claimed)] == [second]
    late.commit()
    assert [one["event_id"] for one in take(conn, claimed)] == [first]


def test_claim_deliveries_plans_more_than_a_thousand_events(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_events(conn, tenant, 2500)
    assert len(take(conn, claimed_dispatch(conn), limit=1, per_endpoint=1)) == 1
    assert len(deliveries(conn)) == 1000
    claimed = claimed_dispatch(conn)
    conn.execute("update mdm.aa_webhook_endpoint set enabled = false")
    assert take(conn, claimed) == []
    assert len(deliveries(conn)) == 1000
    assert undispatched(conn) == 1000  # the others are wanted by nobody now


def test_b111_claim_deliveries_caps_what_is_under_way_to_an_endpoint(conn: Connection, tenant: UUID) -> None:
    slow, quick = make_endpoint(conn, tenant), make_endpoint(conn, tenant)
    make_events(conn, tenant, 10)
    one, two = claimed_dispatch(conn), claimed_dispatch(conn, "w2")
    taken = take(conn, one, 100, 3)
    assert sorted(one["endpoint_id"] for one in taken) == sorted([slow] * 3 + [quick] * 3)
    assert take(conn, two, 100, 3) == []
    done = [one for one in taken if one["endpoint_id"] == quick]
    assert store(conn, one, done) == 3
    assert [one["endpoint_id"] for one in take(conn, two, 100, 3)] == [quick] * 3


def test_claim_deliveries_of_two_sessions_never_take_the_same(conn: Connection, connect: Connect, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_events(conn, tenant, 4)
    one, two = claimed_dispatch(conn), claimed_dispatch(conn, "w2")
    first = connect(autocommit=False)
    taken = take(first, one, 2, 100)
    first.commit()
    others = take(conn, two, 100, 100)
    assert len(taken) == len(others) == 2
    assert not {row["event_id"] for row in taken} & {row["event_id"] for row in others}


def test_deliveries_are_free_again_when_the_job_was_recovered(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_events(conn, tenant, 3)
    one, two = claimed_dispatch(conn), claimed_dispatch(conn, "w2")
    taken = take(conn, one)
    assert store(conn, one, taken[:1]) == 1
    assert take(conn, two) == []
    age(conn, one["id"])
    recover(conn)
    again = take(conn, two)
    assert [row["event_id"] for row in again] == [row["event_id"] for row in taken[1:]]
    with refused("MJ001", detail="recovered"):
        store(conn, one, taken)
    assert store(conn, two, again) == 2
    assert states(conn) == ["delivered"] * 3


def test_record_deliveries_leaves_what_another_lease_has_taken(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    taken = take(conn, claimed_dispatch(conn))
    assert store(conn, claimed_dispatch(conn, "w2"), taken) == 0
    assert states(conn) == ["pending"]


@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 1001}, {"per_endpoint": 0}, {"per_endpoint": 1001}])
def test_claim_deliveries_refuses_odd_limits(conn: Connection, bad: dict[str, int]) -> None:
    with refused("MJ005"):
        take(conn, claimed_dispatch(conn), **bad)


@pytest.mark.parametrize("results", [None, '"x"', "{}"])
def test_record_deliveries_wants_an_array(conn: Connection, results: str | None) -> None:
    claimed = claimed_dispatch(conn)
    with refused("MJ005"):
        call(conn, "record_deliveries", job_id=claimed["id"], lease_no=claimed["lease_no"], results=results)


# -- outcomes


def test_record_deliveries_ends_the_event_with_its_last_delivery(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    first, second = take(conn, claimed)
    store(conn, claimed, [first])
    assert undispatched(conn) == 1
    store(conn, claimed, [second])
    assert undispatched(conn) == 0
    assert [(row["status"], row["response_status"], row["attempts"]) for row in deliveries(conn)] == [
        ("delivered", 204, 1)
    ] * 2


def test_record_deliveries_of_two_sessions_ends_the_event(conn: Connection, connect: Connect, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    one, two = claimed_dispatch(conn), claimed_dispatch(conn, "w2")
    [first], [second] = take(conn, one, 1), take(conn, two, 1)
    slow = connect(autocommit=False)
    quick = connect()
    store(slow, one, [first])
    quick.execute("set lock_timeout = '100ms'")
    with pytest.raises(Exception, match="lock timeout"):
        store(quick, two, [second])
    slow.commit()
    store(quick, two, [second])
    assert undispatched(conn) == 0


def test_record_deliveries_backs_off_and_gives_up(conn: Connection, tenant: UUID) -> None:
    make_kind(conn, "outbox_dispatch", max_attempts=3)
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    waits = []
    for _ in range(3):
        taken = take(conn, claimed)
        assert len(taken) == 1
        before = value(conn, "select clock_timestamp()")
        store(conn, claimed, taken, 500, "HTTP 500: no")
        [row] = deliveries(conn)
        waits.append(row["available_at"] - before)
        assert take(conn, claimed) == []
        all_due(conn)
    assert timedelta(seconds=10) <= waits[0] < timedelta(seconds=19)
    assert timedelta(seconds=20) <= waits[1] < timedelta(seconds=39)
    assert (states(conn), undispatched(conn)) == (["dlq"], 0)
    [dead] = rows(conn, "select * from mdm.v_webhook_dlq")
    assert (dead["attempts"], dead["response_status"], dead["last_error"]) == (3, 500, "HTTP 500: no")


def test_b111_an_endpoint_that_does_not_answer_is_left_alone(conn: Connection, tenant: UUID) -> None:
    dead = make_endpoint(conn, tenant)
    make_events(conn, tenant, 10)
    claimed = claimed_dispatch(conn)
    store(conn, claimed, take(conn, claimed), None, "ReadTimeout")
    assert endpoint(conn, dead)["failures"] == 1
    assert take(conn, claimed) == []  # six have never been tried, and it is paused
    conn.execute("update mdm.aa_webhook_endpoint set paused_until = clock_timestamp()")
    probe = take(conn, claimed)
    assert len(probe) == 1
    assert take(conn, claimed) == []
    store(conn, claimed, probe, None, "ReadTimeout")
    assert endpoint(conn, dead)["failures"] == 2
    conn.execute("update mdm.aa_webhook_endpoint set paused_until = clock_timestamp()")
    store(conn, claimed, take(conn, claimed), 503, "HTTP 503: an answer")
    assert (endpoint(conn, dead)["failures"], endpoint(conn, dead)["paused_until"]) == (0, None)
    assert len(take(conn, claimed)) == 4


def test_an_endpoint_that_answers_badly_is_not_paused(conn: Connection, tenant: UUID) -> None:
    bad = make_endpoint(conn, tenant)
    make_events(conn, tenant, 8)
    claimed = claimed_dispatch(conn)
    store(conn, claimed, take(conn, claimed), 500, "HTTP 500")
    assert endpoint(conn, bad)["failures"] == 0
    assert len(take(conn, claimed)) == 4


# -- what is left


def test_enqueue_next_dispatch_is_silent_when_nothing_is_left(conn: Connection, tenant: UUID) -> None:
    assert next_run(conn, claimed_dispatch(conn)) is None
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    store(conn, claimed, take(conn, claimed))
    assert next_run(conn, claimed) is None


def test_enqueue_next_dispatch_enqueues_one_for_all_runs(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    one, two = claimed_dispatch(conn), claimed_dispatch(conn, "w2")
    store(conn, one, take(conn, one), 500, "HTTP 500")
    [row] = deliveries(conn)
    when = next_run(conn, one)
    assert row["available_at"] <= when < row["available_at"] + timedelta(seconds=5)
    assert next_run(conn, two) == when
    assert value(conn, "select count(*) from mdm.aa_job where available_at = %s", when) == 1


def test_enqueue_next_dispatch_waits_for_a_pause(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    store(conn, claimed, take(conn, claimed), None, "ReadTimeout")
    conn.execute("update mdm.aa_webhook_endpoint set paused_until = clock_timestamp() + interval '1 hour'")
    assert next_run(conn, claimed) > value(conn, "select clock_timestamp() + interval '59 minutes'")


def test_enqueue_next_dispatch_leaves_what_others_have_under_way(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    one, two = claimed_dispatch(conn), claimed_dispatch(conn, "w2")
    taken = take(conn, one)
    assert next_run(conn, two) is None
    assert store(conn, one, taken) == 1


# -- replay


def dead_deliveries(conn: Connection, tenant: UUID, count: int) -> UUID:
    """Make so many dead deliveries and return their endpoint."""
    made = make_endpoint(conn, tenant)
    make_events(conn, tenant, count)
    claimed = claimed_dispatch(conn)
    make_kind(conn, "outbox_dispatch", max_attempts=1)
    store(conn, claimed, take(conn, claimed, 100, 100), 500, "HTTP 500")
    finish(conn, claimed)
    make_kind(conn, "outbox_dispatch", max_attempts=10)
    assert states(conn) == ["dlq"] * count
    conn.execute("delete from mdm.aa_job")
    return made


def test_replay_deliveries_brings_them_back(conn: Connection, connect: Connect, tenant: UUID) -> None:
    made = dead_deliveries(conn, tenant, 5)
    admin = connect(role="mdm_admin")
    for path in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
        admin.execute(f"set enable_{path} = off".encode())  # whatever the planner does, the limit holds
    assert call(admin, "replay_deliveries", endpoint_id=made, limit=2, reason="well again") == [
        {"replay_deliveries": 2}
    ]
    assert sorted(states(conn)) == ["dlq"] * 3 + ["pending"] * 2
    assert (undispatched(conn), due_jobs(conn)) == (2, 1)
    [row] = audit(conn, str(made))
    assert (row["action"], row["payload"]) == ("job_replay", {"deliveries": 2, "reason": "well again"})
    claimed = claimed_dispatch(conn)
    assert store(conn, claimed, take(conn, claimed)) == 2
    assert undispatched(conn) == 0


def test_replay_deliveries_takes_one_event(conn: Connection, tenant: UUID) -> None:
    made = dead_deliveries(conn, tenant, 3)
    event_id = deliveries(conn)[1]["event_id"]
    assert call(conn, "replay_deliveries", endpoint_id=made, event_id=event_id) == [{"replay_deliveries": 1}]
    assert states(conn) == ["dlq", "pending", "dlq"]
    assert call(conn, "replay_deliveries", endpoint_id=made, event_id=event_id) == [{"replay_deliveries": 0}]


def test_replay_deliveries_refuses_bad_arguments(conn: Connection, tenant: UUID) -> None:
    made = make_endpoint(conn, tenant)
    with refused("MJ002"):
        call(conn, "replay_deliveries", endpoint_id=uuid4())
    for limit in (0, 10_001):
        with refused("MJ005"):
            call(conn, "replay_deliveries", endpoint_id=made, limit=limit)


# -- upkeep


def test_wake_outbox_enqueues_one_for_an_overdue_event(conn: Connection, tenant: UUID) -> None:
    make_endpoint(conn, tenant)
    make_event(conn, tenant)
    conn.execute("delete from mdm.aa_job")
    assert value(conn, "select mdm.wake_outbox()") == 0
    conn.execute("update mdm.aa_outbox_event set created_at = created_at - interval '31 seconds'")
    conn.execute("call mdm.cleanup_jobs()")
    conn.execute("call mdm.cleanup_jobs()")
    assert due_jobs(conn) == 1


def test_wake_outbox_enqueues_one_for_an_overdue_delivery(conn: Connection, tenant: UUID) -> None:
    made = make_endpoint(conn, tenant)
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    store(conn, claimed, take(conn, claimed), 500, "HTTP 500")
    finish(conn, claimed)
    conn.execute("delete from mdm.aa_job")
    assert value(conn, "select mdm.wake_outbox()") == 0
    conn.execute("update mdm.aa_webhook_delivery set available_at = clock_timestamp() - interval '31 seconds'")
    conn.execute("update mdm.aa_webhook_endpoint set enabled = false where id = %s", (made,))
    assert value(conn, "select mdm.wake_outbox()") == 0
    conn.execute("update mdm.aa_webhook_endpoint set enabled = true where id = %s", (made,))
    assert value(conn, "select mdm.wake_outbox()") == 1


def silent_endpoint(conn: Connection, tenant: UUID, failures: int = 10) -> UUID:
    """Make an endpoint that left so many posts unanswered, and three deliveries for it, due for eleven hours."""
    made = make_endpoint(conn, tenant)
    make_events(conn, tenant, 3)
    claimed = claimed_dispatch(conn)
    store(conn, claimed, take(conn, claimed, 1), None, "ReadTimeout")
    finish(conn, claimed)
    conn.execute("update mdm.aa_webhook_delivery set available_at = clock_timestamp() - interval '11 hours'")
    conn.execute(
        "update mdm.aa_webhook_endpoint set failures = %s, paused_until = clock_timestamp() + interval '1 hour'",
        (failures,),
    )
    return made


def test_b111_deliveries_to_an_endpoint_that_never_answers_are_dead_in_the_end(
    conn: Connection, connect: Connect, tenant: UUID
) -> None:
    silent = silent_endpoint(conn, tenant)
    make_event(conn, tenant)
    claimed = claimed_dispatch(conn)
    assert take(conn, claimed) == []
    finish(conn, claimed)
    connect(role="mdm_worker").execute("call mdm.cleanup_jobs()")
    assert states(conn) == ["dlq", "dlq", "dlq", "pending"], "the last one has just come"
    assert undispatched(conn) == 1
    dead = rows(conn, "select attempts, last_error from mdm.v_webhook_dlq order by event_id")
    assert [row["attempts"] for row in dead] == [1, 0, 0]
    assert dead[0]["last_error"] == "given up after 10:00:00 behind an endpoint that does not answer; ReadTimeout"
    assert call(conn, "replay_deliveries", endpoint_id=silent)[0]["replay_deliveries"] == 3
    assert value(conn, "select mdm.give_up_deliveries()") == 0, "replayed, each has its time again"


def test_give_up_deliveries_is_bounded(conn: Connection, tenant: UUID) -> None:
    silent_endpoint(conn, tenant)
    assert [value(conn, "select mdm.give_up_deliveries(2)") for _ in range(3)] == [2, 1, 0]
    for limit in (0, 10_001):
        with refused("MJ005"):
            call(conn, "give_up_deliveries", limit=limit)


def test_give_up_deliveries_leaves_those_alone_that_have_their_turn(conn: Connection, tenant: UUID) -> None:
    """An endpoint that failed less often, one that somebody disabled, a backlog within its time, a post under way."""
    silent = silent_endpoint(conn, tenant, failures=9)
    assert value(conn, "select mdm.give_up_deliveries()") == 0
    conn.execute("update mdm.aa_webhook_endpoint set failures = 10, enabled = false")
    assert value(conn, "select mdm.give_up_deliveries()") == 0
    conn.execute("update mdm.aa_webhook_endpoint set enabled = true")
    make_kind(conn, "outbox_dispatch", max_delay="2 hours")
    assert value(conn, "select mdm.give_up_deliveries()") == 0
    make_kind(conn, "outbox_dispatch", max_delay="1 hour", max_attempts=2**31 - 1)
    conn.execute("update mdm.aa_webhook_endpoint set failures = %s", (2**31 - 1,))
    assert value(conn, "select mdm.give_up_deliveries()") == 0
    make_kind(conn, "outbox_dispatch", max_attempts=10)
    conn.execute("update mdm.aa_webhook_endpoint set paused_until = null where id = %s", (silent,))
    assert len(take(conn, claimed_dispatch(conn))) == 1
    assert value(conn, "select mdm.give_up_deliveries()") == 2


def test_compact_outbox_keeps_events_with_a_dead_delivery(conn: Connection, tenant: UUID) -> None:
    dead_deliveries(conn, tenant, 2)
    make_event(conn, make_tenant(conn, "nobody listens"))
    claimed = claimed_dispatch(conn)
    take(conn, claimed)
    conn.execute("update mdm.aa_outbox_event set dispatched_at = dispatched_at - interval '100 hours'")
    assert value(conn, "select mdm.compact_outbox()") == 1
    make_kind(conn, "outbox_dispatch", retention_dlq="99 hours")
    assert value(conn, "select mdm.compact_outbox()") == 2
    assert deliveries(conn) == []


def test_claimed_jobs_are_claimed(conn: Connection) -> None:
    """The helper above claims its own job before those of the trigger."""
    claimed = claimed_dispatch(conn)
    assert job(conn, claimed["id"])["status"] == "running"
    assert claim(conn, "outbox_dispatch") == []
