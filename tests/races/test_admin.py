"""Two administrators, and maintenance from several sides, at the same moment (S9, D17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from jobs import (
    KIND,
    actions,
    age,
    audit,
    call,
    claim,
    enqueue,
    ids,
    job,
    make_job,
    make_kind,
    make_tenant,
    rows,
    status,
    statuses,
    stored,
    value,
    violations,
)
from outbox import make_endpoint, make_event
from races.sessions import Connection, background, result, results, sqlstate, together, wait_until_blocked

Session = Callable[..., Connection]
ROUNDS = 50


def act(conn: Connection, function: str, job_id: int) -> str:
    """Replay, discard or stop a job; gives the outcome."""
    [row] = call(conn, function, job_id=job_id)
    return str(row[function])


# -- replay and discard (B66)


@pytest.mark.parametrize(
    ("first", "second", "code", "seen"),
    [
        ("replay_job", "replay_job", "MJ004", ["job_dlq", "job_replay"]),
        ("replay_job", "stop_job", None, ["job_dlq", "job_replay", "job_stop"]),
        ("replay_job", "discard_job", None, ["job_dlq", "job_replay", "job_discard"]),
        ("discard_job", "replay_job", "MJ002", ["job_dlq", "job_discard"]),
        ("discard_job", "discard_job", "MJ002", ["job_dlq", "job_discard"]),
        ("stop_job", "replay_job", None, ["job_dlq", "job_stop", "job_replay"]),
        ("stop_job", "stop_job", "MJ004", ["job_dlq", "job_stop"]),
    ],
)
def test_b66_the_second_admin_waits_and_meets_what_the_first_left(
    conn: Connection, session: Session, first: str, second: str, code: str | None, seen: list[str]
) -> None:
    dead = make_job(conn, "dlq", payload={"a": 1})
    one, two = session(), session()
    with one.transaction():
        act(one, first, dead["id"])
        waiting = background(act, two, second, dead["id"])
        wait_until_blocked(conn, two, waiting)
    assert sqlstate(waiting) == code
    assert actions(conn, dead["id"])[1:] == seen


@pytest.mark.parametrize("first", ["replay_job", "discard_job", "stop_job"])
@pytest.mark.parametrize("second", ["replay_job", "discard_job"])
def test_b66_the_second_admin_acts_when_the_first_rolls_back(
    conn: Connection, session: Session, first: str, second: str
) -> None:
    dead = make_job(conn, "dlq")
    one, two = session(), session()
    with one.transaction(force_rollback=True):
        act(one, first, dead["id"])
        waiting = background(act, two, second, dead["id"])
        wait_until_blocked(conn, two, waiting)
    assert result(waiting) in ("replayed", "discarded")
    assert actions(conn, dead["id"])[2:] == [f"job_{second.removesuffix('_job')}"]


def test_b66_of_two_replays_exactly_one_succeeds(conn: Connection, session: Session) -> None:
    one, two = session(), session()
    for _ in range(ROUNDS):
        dead = make_job(conn, "dlq")["id"]
        ended = together(
            [lambda dead=dead: act(one, "replay_job", dead), lambda dead=dead: act(two, "replay_job", dead)]
        )
        assert sorted(map(sqlstate, ended), key=str) == ["MJ004", None]
        assert actions(conn, dead).count("job_replay") == 1
        act(conn, "discard_job", dead)


def test_b66_replay_and_discard_are_one_after_the_other(conn: Connection, session: Session) -> None:
    """Discard first: replay finds nothing. Replay first: discard deletes the pending job. Never half of both."""
    one, two = session(), session()
    orders = Counter[str]()
    for n in range(ROUNDS):
        dead = make_job(conn, "dlq", payload={"n": n})["id"]
        replay, discard = together(
            [lambda dead=dead: act(one, "replay_job", dead), lambda dead=dead: act(two, "discard_job", dead)]
        )
        assert sqlstate(discard) is None
        assert sqlstate(replay) in (None, "MJ002")
        assert stored(conn, dead) is None
        seen = actions(conn, dead)
        assert seen == ["job_enqueued", "job_dlq", *(["job_replay"] if sqlstate(replay) is None else []), "job_discard"]
        snapshot = audit(conn, dead)[-1]["payload"]
        assert snapshot["payload"] == {"n": n}
        assert snapshot["status"] == ("pending" if "job_replay" in seen else "dlq")
        orders[snapshot["status"]] += 1
    assert sum(orders.values()) == ROUNDS


def test_b65_discard_of_a_job_that_is_being_claimed_is_refused(conn: Connection, session: Session) -> None:
    job_id = enqueue(conn)
    worker, admin = session(), session()
    with worker.transaction():
        claim(worker)
        waiting = background(act, admin, "discard_job", job_id)
        wait_until_blocked(conn, admin, waiting)
    assert sqlstate(waiting) == "MJ004"
    assert status(conn, job_id) == "running"


def test_claim_skips_what_is_being_discarded_stopped_or_replayed(conn: Connection, session: Session) -> None:
    admin, worker = session(), session(patient=False)
    dead = make_job(conn, "dlq")["id"]
    discarded, stopped = enqueue(conn), enqueue(conn)
    with admin.transaction():
        act(admin, "discard_job", discarded)
        act(admin, "stop_job", stopped)
        act(admin, "replay_job", dead)
        assert claim(worker, limit=5) == []
    assert ids(claim(worker, limit=5)) == [dead]


# -- upkeep


def stale_jobs(conn: Connection, jobs: int) -> list[int]:
    """Make running jobs that were claimed one by one and have been silent for long."""
    for _ in range(jobs):
        enqueue(conn)
    made = [claim(conn)[0]["id"] for _ in range(jobs)]
    age(conn, *made)
    return made


def cleanup(conn: Connection) -> str:
    conn.execute("call mdm.cleanup_jobs()")
    return "done"


def test_b71_cleanup_returns_at_once_while_another_one_works(conn: Connection, session: Session) -> None:
    stale_jobs(conn, 3)
    busy, idle = session(), session(patient=False)
    with busy.transaction():
        assert value(busy, "select pg_try_advisory_xact_lock(6579046001)") is True
        cleanup(idle)
        assert statuses(conn) == {"running": 3}
    cleanup(idle)
    assert statuses(conn) == {"pending": 3}


def test_b71_three_cleanups_at_once_do_the_work_once(conn: Connection, session: Session) -> None:
    sessions = [session() for _ in range(3)]
    for _ in range(10):
        conn.execute("delete from mdm.aa_job")
        made = stale_jobs(conn, 20)
        assert results([lambda s=s: cleanup(s) for s in sessions]) == ["done"] * 3  # type: ignore[misc]
        assert statuses(conn) == {"pending": 20}
        recovered = rows(conn, "select id, recoveries, last_error from mdm.aa_job order by id")
        assert recovered == [{"id": id, "recoveries": 1, "last_error": "[stale-claim recovered]"} for id in made]


def test_b12_a_cleanup_job_that_died_is_recovered_like_any_other(conn: Connection) -> None:
    job_id = enqueue(conn, "cleanup_jobs", idempotency_key="singleton")
    assert ids(claim(conn, "cleanup_jobs")) == [job_id]
    age(conn, job_id)
    assert enqueue(conn, "cleanup_jobs", idempotency_key="singleton") == job_id  # nobody else would come
    cleanup(conn)
    assert status(conn, job_id) == "pending"


# -- the registry of runners


def announce(conn: Connection, runner_id: str, kinds: list[str]) -> str:
    call(conn, "announce_runner", runner_id=runner_id, kinds=kinds, tenant_ids=None, hungry=True)
    return runner_id


def runners(conn: Connection) -> dict[str, list[str]]:
    return {row["runner_id"]: row["kinds"] for row in rows(conn, "select runner_id, kinds from mdm.aa_job_runner")}


def test_announce_runner_of_two_processes_waits_for_nobody(conn: Connection, session: Session) -> None:
    announce(conn, "expired", [KIND])
    conn.execute("update mdm.aa_job_runner set expires_at = '2000-01-01'")
    one, two = session(), session(patient=False)
    with one.transaction():
        announce(one, "one", [KIND])
        announce(two, "two", [KIND])
    assert runners(conn) == {"one": [KIND], "two": [KIND]}


def test_announce_runner_twice_under_one_name_takes_the_later(conn: Connection, session: Session) -> None:
    one, two = session(), session()
    with one.transaction():
        announce(one, "r", [KIND])
        waiting = background(announce, two, "r", ["cleanup_jobs"])
        wait_until_blocked(conn, two, waiting)
    result(waiting)
    assert runners(conn) == {"r": ["cleanup_jobs"]}


def test_announce_runner_survives_its_own_expiry_being_swept(conn: Connection, session: Session) -> None:
    announce(conn, "late", [KIND])
    conn.execute("update mdm.aa_job_runner set expires_at = '2000-01-01'")
    other, late = session(), session()
    with other.transaction():
        announce(other, "other", [KIND])  # sweeps late's row
        waiting = background(announce, late, "late", [KIND])
        wait_until_blocked(conn, late, waiting)
    result(waiting)
    assert runners(conn) == {"other": [KIND], "late": [KIND]}


def test_announce_runner_of_many_at_once(conn: Connection, session: Session) -> None:
    sessions = [session() for _ in range(4)]

    def announce_often(own: Connection, name: str) -> str:
        for n in range(50):
            announce(own, name, [KIND] if n % 3 else [])
            announce(own, "shared", [KIND])
        return name

    names = [f"r{n}" for n in range(4)]
    assert (
        results(
            [lambda s=s, n=n: announce_often(s, n) for s, n in zip(sessions, names, strict=True)]  # type: ignore[misc]
        )
        == names
    )
    assert set(runners(conn)) == {*names, "shared"}


def test_recover_by_two_sessions_takes_each_job_once(conn: Connection, session: Session) -> None:
    made = stale_jobs(conn, 40)
    one, two = session(), session(patient=False)
    with one.transaction():
        first = call(one, "recover_stale_jobs", limit=30)
        second = call(two, "recover_stale_jobs")
    assert sorted(row["job_id"] for row in first + second) == made
    assert len(second) == 10
    assert {job(conn, id)["recoveries"] for id in made} == {1}
    assert violations(conn) == {}


def test_replay_of_deliveries_beside_the_compaction_of_their_event(conn: Connection, session: Session) -> None:
    """Both lock the event before its deliveries."""
    make_kind(conn, "outbox_dispatch", retention_done="1 hour", retention_dlq="1 hour")
    tenant = make_tenant(conn)
    event = make_event(conn, tenant)
    delivered, dead = sorted(make_endpoint(conn, tenant) for _ in range(2))
    conn.execute("update mdm.aa_outbox_event set planned_at = '2020-01-01', dispatched_at = '2020-01-01'")
    for endpoint_id, state in ((delivered, "delivered"), (dead, "dlq")):
        conn.execute(
            "insert into mdm.aa_webhook_delivery (event_id, endpoint_id, status, completed_at)"
            " values (%s, %s, %s, now())",
            (event, endpoint_id, state),
        )
    holder, compacting, replaying = session(autocommit=False), session(), session()
    holder.execute("select from mdm.aa_webhook_delivery where endpoint_id = %s for update", (delivered,))
    compaction = background(value, compacting, "select mdm.compact_outbox()")
    wait_until_blocked(conn, compacting, compaction)
    replay = background(value, replaying, "select mdm.replay_deliveries(%s)", dead)
    wait_until_blocked(conn, replaying, replay)
    holder.rollback()
    assert (result(compaction), result(replay)) == (1, 0)
