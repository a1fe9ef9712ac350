"""One key, several producers, claims and purges at the same moment (S10.1, D6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString

import pytest
from psycopg.types.json import Jsonb

from jobs import (
    KIND,
    Row,
    actions,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    finish,
    ids,
    job,
    make_job,
    make_kind,
    make_tenant,
    refused,
    release,
    rows,
    status,
    statuses,
    stored,
    value,
    violations,
)
from races.sessions import Connection, background, result, results, wait_until_blocked

Session = Callable[..., Connection]


def enqueue_keyed(
    conn: Connection, n: int, on_conflict: str = "ignore", *, key: str = "k", job_kind: str = KIND
) -> Row:
    """Enqueue one job with a key and payload {"n": n}; gives id and outcome."""
    element = {"job_kind": job_kind, "payload": {"n": n}, "idempotency_key": key, "on_conflict": on_conflict}
    [row] = call(conn, "enqueue_jobs", jobs=Jsonb([element]))
    return row


def pair(row: Row) -> tuple[int, str]:
    return row["job_id"], row["outcome"]


# -- enqueue against enqueue


@pytest.mark.parametrize(("on_conflict", "outcome", "n"), [("ignore", "existing", 1), ("update", "updated", 2)])
def test_b31_the_second_producer_gets_the_id_that_the_first_commits(
    conn: Connection, session: Session, on_conflict: str, outcome: str, n: int
) -> None:
    first, second = session(), session()
    with first.transaction():
        made = enqueue_keyed(first, 1, on_conflict)
        waiting = background(enqueue_keyed, second, 2, on_conflict)
        wait_until_blocked(conn, second, waiting)
    assert made["outcome"] == "inserted"
    assert pair(result(waiting)) == (made["job_id"], outcome)
    assert job(conn, made["job_id"])["payload"] == {"n": n}
    assert statuses(conn) == {"pending": 1}
    assert actions(conn, made["job_id"]) == ["job_enqueued"] * n


@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_b32_the_second_producer_makes_the_job_when_the_first_rolls_back(
    conn: Connection, session: Session, on_conflict: str
) -> None:
    first, second = session(), session()
    with first.transaction(force_rollback=True):
        made = enqueue_keyed(first, 1, on_conflict)
        waiting = background(enqueue_keyed, second, 2, on_conflict)
        wait_until_blocked(conn, second, waiting)
    job_id, outcome = pair(result(waiting))
    assert (job_id != made["job_id"], outcome) == (True, "inserted")
    assert job(conn, job_id)["payload"] == {"n": 2}
    assert statuses(conn) == {"pending": 1}
    assert actions(conn, job_id) == ["job_enqueued"]


@pytest.mark.parametrize("function", ["enqueue_job", "enqueue_jobs"])
@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_b31_many_producers_of_one_key_all_get_its_id(
    conn: Connection, session: Session, function: str, on_conflict: str
) -> None:
    producers = [session() for _ in range(4)]

    def produce(producer: Connection, key: str) -> int:
        if function == "enqueue_job":
            return enqueue(producer, idempotency_key=key, on_conflict=on_conflict)
        return int(enqueue_keyed(producer, 1, on_conflict, key=key)["job_id"])

    for n in range(50):
        made = results([lambda p=p, n=n: produce(p, f"k{n}") for p in producers])  # type: ignore[misc]
        assert len(set(made)) == 1
    assert statuses(conn) == {"pending": 50}


@pytest.mark.parametrize("outcome", ["inserted", "updated"])
def test_second_update_waits_for_the_first_and_the_last_payload_wins(
    conn: Connection, session: Session, outcome: str
) -> None:
    """The first makes or changes the pending job, the second changes it: nothing that was asked for is lost."""
    if outcome == "updated":
        enqueue_keyed(conn, 0)
    first, second = session(), session()
    with first.transaction():
        assert enqueue_keyed(first, 1, "update")["outcome"] == outcome
        waiting = background(enqueue_keyed, second, 2, "update")
        wait_until_blocked(conn, second, waiting)
    job_id, second_outcome = pair(result(waiting))
    assert second_outcome == "updated"
    assert job(conn, job_id)["payload"] == {"n": 2}


def test_two_updates_of_a_running_job_make_one_newer_generation(conn: Connection, session: Session) -> None:
    older = enqueue_keyed(conn, 1)["job_id"]
    claim_one(conn)
    first, second = session(), session()
    with first.transaction():
        newer, outcome = pair(enqueue_keyed(first, 2, "update"))
        assert outcome == "inserted"
        waiting = background(enqueue_keyed, second, 3, "update")
        wait_until_blocked(conn, second, waiting)
    assert pair(result(waiting)) == (newer, "updated")
    assert [job(conn, id)["key_no"] for id in (older, newer)] == [0, 1]
    assert job(conn, newer)["payload"] == {"n": 3}


# -- update against the worker


@pytest.fixture
def running(conn: Connection, session: Session) -> tuple[Row, Connection]:
    """A running job with key k, and a session that stays in the transaction of an update of it."""
    enqueue_keyed(conn, 1)
    claimed = claim_one(conn)
    producer = session(autocommit=False)
    assert enqueue_keyed(producer, 2, "update")["outcome"] == "inserted"
    return claimed, producer


@pytest.fixture
def claimed_meanwhile(conn: Connection, session: Session) -> tuple[Row, Connection]:
    """A job with key k whose claim commits while an update waits for it; the update's transaction stays open."""
    enqueue_keyed(conn, 1)
    worker, producer = session(), session(autocommit=False)
    with worker.transaction():
        claimed = claim_one(worker)
        waiting = background(enqueue_keyed, producer, 2, "update")
        wait_until_blocked(conn, producer, waiting)
    job_id, outcome = pair(result(waiting))
    assert (job_id != claimed["id"], outcome) == (True, "inserted")
    return claimed, producer


def extend(conn: Connection, claimed: Row) -> None:
    [row] = call(conn, "extend_jobs", job_ids=[claimed["id"]], lease_nos=[claimed["lease_no"]])
    assert row["alive"]


@pytest.mark.parametrize("when", ["running", "claimed_meanwhile"])
@pytest.mark.parametrize(
    ("act", "before", "after"),
    [(finish, "done", "done"), (extend, "running", "running"), (fail, "pending", "done"), (release, "pending", "done")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_update_that_stays_open_stops_neither_end_nor_heartbeat(
    request: pytest.FixtureRequest,
    conn: Connection,
    session: Session,
    when: str,
    act: Callable[[Connection, Row], Any],
    before: str,
    after: str,
) -> None:
    claimed, producer = request.getfixturevalue(when)
    worker = session(patient=False)
    act(worker, claimed)
    assert status(conn, claimed["id"]) == before
    producer.commit()
    newer = claim_one(worker)
    assert (newer["key_no"], newer["payload"]) == (1, {"n": 2})
    conn.execute("update mdm.aa_job set available_at = clock_timestamp() where status = 'pending'")
    assert claim(worker) == []
    assert status(conn, claimed["id"]) == after
    assert violations(conn) == {}


def test_update_waiting_for_a_claim_changes_the_job_when_the_claim_rolls_back(
    conn: Connection, session: Session
) -> None:
    job_id = enqueue_keyed(conn, 1)["job_id"]
    worker, producer = session(), session()
    with worker.transaction(force_rollback=True):
        claim_one(worker)
        waiting = background(enqueue_keyed, producer, 2, "update")
        wait_until_blocked(conn, producer, waiting)
    assert pair(result(waiting)) == (job_id, "updated")
    assert job(conn, job_id)["payload"] == {"n": 2}


@pytest.mark.parametrize("state", ["running", "done", "dlq", "failed"])
def test_ignore_waits_for_nobody_who_holds_the_newest_job(conn: Connection, session: Session, state: str) -> None:
    made = make_job(conn, state, idempotency_key="k")
    holder, producer = session(), session(patient=False)
    with holder.transaction():
        holder.execute("select from mdm.aa_job where id = %s for update", (made["id"],))
        assert pair(enqueue_keyed(producer, 2)) == (made["id"], "existing")
        assert enqueue_keyed(producer, 2, "update")["outcome"] == "inserted"


def test_update_makes_a_new_job_when_the_pending_one_is_discarded_meanwhile(conn: Connection, session: Session) -> None:
    old = enqueue_keyed(conn, 1)["job_id"]
    admin, producer = session(), session()
    with admin.transaction():
        call(admin, "discard_job", job_id=old)
        waiting = background(enqueue_keyed, producer, 2, "update")
        wait_until_blocked(conn, producer, waiting)
    new, outcome = pair(result(waiting))
    assert (new != old, outcome) == (True, "inserted")
    assert job(conn, new)["payload"] == {"n": 2}


def test_update_makes_a_new_job_when_the_pending_one_is_stopped_meanwhile(conn: Connection, session: Session) -> None:
    old = enqueue_keyed(conn, 1)["job_id"]
    admin, producer = session(), session()
    with admin.transaction():
        call(admin, "stop_job", job_id=old)
        waiting = background(enqueue_keyed, producer, 2, "update")
        wait_until_blocked(conn, producer, waiting)
    new, outcome = pair(result(waiting))
    assert (new != old, outcome) == (True, "inserted")
    assert statuses(conn) == {"failed": 1, "pending": 1}


# -- purge against enqueue


def expired(conn: Connection) -> int:
    """Make a done job with key k whose retention has passed."""
    made = make_job(conn, "done", idempotency_key="k")
    conn.execute("update mdm.aa_job set completed_at = '2000-01-01' where id = %s", (made["id"],))
    return int(made["id"])


def purge(conn: Connection) -> int:
    [row] = call(conn, "purge_jobs")
    return int(row["purge_jobs"])


def test_ignore_beside_an_open_purge_does_not_wait_and_is_as_if_it_came_before(
    conn: Connection, session: Session
) -> None:
    old = expired(conn)
    cleaner, producer = session(), session(patient=False)
    with cleaner.transaction():
        assert purge(cleaner) == 1
        assert pair(enqueue_keyed(producer, 2)) == (old, "existing")
    new, outcome = pair(enqueue_keyed(producer, 2))
    assert (new != old, outcome) == (True, "inserted")


def test_update_beside_an_open_purge_makes_a_job_that_survives_it(conn: Connection, session: Session) -> None:
    old = expired(conn)
    cleaner, producer = session(), session(patient=False)
    with cleaner.transaction():
        assert purge(cleaner) == 1
        new, outcome = pair(enqueue_keyed(producer, 2, "update"))
        assert (new != old, outcome) == (True, "inserted")
    assert stored(conn, old) is None
    assert status(conn, new) == "pending"


def test_purge_passes_over_what_is_being_replayed(conn: Connection, session: Session) -> None:
    make_kind(conn, KIND, retention_dlq="1 second")
    dead = make_job(conn, "dlq")
    conn.execute("update mdm.aa_job set completed_at = '2000-01-01'")
    admin, cleaner = session(), session(patient=False)
    with admin.transaction():
        call(admin, "replay_job", job_id=dead["id"])
        assert purge(cleaner) == 0
    assert purge(cleaner) == 0
    assert status(conn, dead["id"]) == "pending"


def test_two_purges_share_the_work(conn: Connection, session: Session) -> None:
    for _ in range(4):
        enqueue(conn)
    for claimed in claim(conn, limit=4):
        finish(conn, claimed)
    conn.execute("update mdm.aa_job set completed_at = '2000-01-01'")
    first, second = session(), session(patient=False)
    with first.transaction():
        call(first, "purge_jobs", limit=3)
        assert purge(second) == 1
    assert rows(conn, "select id from mdm.aa_job") == []


# -- keys


def test_b35_keys_are_scoped_by_tenant_and_kind(conn: Connection) -> None:
    one, two = make_tenant(conn), make_tenant(conn)
    make_kind(conn, "c")
    make_kind(conn, "b:c")
    made = [
        enqueue(conn, tenant_id=one, idempotency_key="k"),
        enqueue(conn, tenant_id=two, idempotency_key="k"),
        enqueue(conn, idempotency_key="k"),
        enqueue(conn, "outbox_dispatch", tenant_id=one, idempotency_key="k"),
        enqueue(conn, "c", idempotency_key="a:b"),
        enqueue(conn, "b:c", idempotency_key="a"),
    ]
    assert len(set(made)) == len(made)
    assert enqueue(conn, tenant_id=one, idempotency_key="k") == made[0]
    assert enqueue(conn, idempotency_key="k") == made[2]


ENQUEUE: LiteralString = """
    select count(mdm.enqueue_job(%s, p_idempotency_key => 'k' || g, p_on_conflict => %s))
    from generate_series(1, 1000) g
"""


def next_xid(conn: Connection) -> int:
    return int(value(conn, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))


def xids_used(conn: Connection, worker: Connection, act: Callable[[], Any], wanted: int = 1) -> int:
    """Count the transaction ids that an act takes, subtransactions included; the least of ten, for autovacuum may
    take some as well."""
    used = []
    for _ in range(10):
        before = next_xid(conn)
        with worker.transaction(force_rollback=True):
            act()
        used.append(next_xid(conn) - before)
        if used[-1] <= wanted:
            break
    return min(used)


@pytest.mark.parametrize("on_conflict", ["ignore", "update"])
def test_b121_enqueue_with_keys_uses_no_subtransactions(conn: Connection, session: Session, on_conflict: str) -> None:
    producer = session()
    assert xids_used(conn, producer, lambda: producer.execute(ENQUEUE, (KIND, on_conflict))) <= 1


def test_b121_ignored_enqueues_use_no_transaction_id(conn: Connection, session: Session) -> None:
    producer = session()
    producer.execute(ENQUEUE, (KIND, "ignore"))
    assert xids_used(conn, producer, lambda: producer.execute(ENQUEUE, (KIND, "ignore")), wanted=0) == 0


@pytest.mark.parametrize("end", [finish, fail, release])
def test_b121_ends_use_no_subtransactions(
    conn: Connection, session: Session, end: Callable[[Connection, Row], Any]
) -> None:
    for _ in range(100):
        enqueue(conn)
    batch = claim(conn, limit=100)
    worker = session()

    def end_all() -> None:
        for claimed in batch:
            end(worker, claimed)

    assert xids_used(conn, worker, end_all) <= 1


def test_enqueue_keyed_under_repeatable_read_is_an_error_and_never_a_loop(conn: Connection, session: Session) -> None:
    """The winner's row is there but cannot be seen: to look again would not help."""
    producer = session(autocommit=False)
    producer.execute("set transaction isolation level repeatable read")
    producer.execute("select count(*) from mdm.aa_job")
    enqueue_keyed(conn, 1)
    with refused("40001"):
        enqueue_keyed(producer, 2)
    producer.rollback()
    assert enqueue_keyed(producer, 2)["outcome"] == "existing"
    producer.commit()
    assert ids(claim(conn, limit=2)) == ids(rows(conn, "select id from mdm.aa_job"))
