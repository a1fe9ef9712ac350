"""claim_job (S4, D2, D3, D13, D14, D16): order, lanes, filters, floors, jobs that run alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from jobs import (
    Connection,
    age,
    call,
    changes,
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
    recover,
    refused,
    release,
    snapshot,
    status,
    value,
)

KINDS = ("reindex", "cleanup_jobs", "index_sync")
PAST = datetime(2020, 1, 1, tzinfo=UTC)


def at(second: int) -> datetime:
    return PAST + timedelta(seconds=second)


# ---- one claim


def test_claim_job_returns_the_whole_row_as_stored(conn: Connection) -> None:
    before = job(conn, enqueue(conn, payload={"a": 1}, context=Jsonb({"t": 1})))
    claimed = claim_one(conn, worker_id="host/1/x")
    assert claimed == job(conn, before["id"])
    changed = changes(before, claimed)
    assert abs(changed.pop("claimed_at") - datetime.now(UTC)) < timedelta(minutes=1)
    assert 0 <= changed.pop("lease_no") < 2**53
    assert changed == {"status": "running", "claimed_by": "host/1/x", "attempts": 1, "claimed_together": 1}


def test_claim_job_of_an_empty_queue_is_no_row(conn: Connection) -> None:
    assert claim(conn, *KINDS, limit=10) == []


def test_claim_job_draws_a_lease_for_each_row(conn: Connection) -> None:
    for _ in range(100):
        enqueue(conn)
    assert len({row["lease_no"] for row in claim(conn, limit=100)}) == 100


def test_claim_job_draws_a_new_lease_each_time(conn: Connection) -> None:
    enqueue(conn)
    leases = set()
    for _ in range(20):
        claimed = claim_one(conn)
        leases.add(claimed["lease_no"])
        release(conn, claimed)
    assert len(leases) == 20


def test_claim_job_writes_no_audit(conn: Connection) -> None:
    enqueue(conn)
    before = value(conn, "select count(*) from mdm.aa_audit_log")
    claim(conn)
    assert value(conn, "select count(*) from mdm.aa_audit_log") == before


def test_claim_job_waits_for_available_at(conn: Connection) -> None:
    later = enqueue(conn, available_at=datetime.now(UTC) + timedelta(hours=1))
    assert claim(conn) == []
    conn.execute("update mdm.aa_job set available_at = clock_timestamp() - interval '1 second'")
    assert claim_one(conn)["id"] == later


@pytest.mark.parametrize("state", ["running", "done", "failed", "dlq"])
def test_claim_job_takes_pending_jobs_only(conn: Connection, state: str) -> None:
    make_job(conn, state)
    assert claim(conn, limit=10) == []


def test_b26_claim_in_an_open_transaction_sees_what_is_due_now(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    worker = connect(autocommit=False)
    worker.execute("select now()")
    job_id = enqueue(conn)
    assert claim_one(worker)["id"] == job_id
    assert job(worker, job_id)["claimed_at"] > value(worker, "select now()")


@pytest.mark.parametrize("attempts", [2**31 - 2, 2**31 - 1])
def test_b19_claim_of_a_job_with_the_greatest_attempts(conn: Connection, attempts: int) -> None:
    job_id = enqueue(conn, max_attempts=2**31 - 1)
    conn.execute("update mdm.aa_job set attempts = %s where id = %s", (attempts, job_id))
    assert claim_one(conn)["attempts"] == 2**31 - 1


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "enable_hashjoin enable_sort enable_mergejoin enable_material enable_bitmapscan",
        "enable_nestloop enable_indexscan",
    ],
)
@pytest.mark.parametrize("limit", [1, 3, 20])
def test_b43_claim_takes_no_more_than_its_limit_whatever_the_plan(conn: Connection, setting: str, limit: int) -> None:
    for _ in range(20):
        enqueue(conn)
    for name in setting.split():
        conn.execute("select set_config(%s, 'off', false)", (name,))
    assert len(claim(conn, limit=limit)) == limit
    assert value(conn, "select count(*) from mdm.aa_job where status = 'running'") == limit


# ---- order (D16)


def test_d16_order_over_two_kinds_with_crossed_priorities(conn: Connection) -> None:
    """The smaller priority first, then the earlier, then the smaller id; kinds and tenants are mixed."""
    tenant_id = make_tenant(conn)
    expected = []
    for number in range(40):
        key = (number * 7 % 3, at(number * 11 % 5))
        job_id = enqueue(
            conn,
            KINDS[number % 2],
            priority=key[0],
            available_at=key[1],
            tenant_id=tenant_id if number % 3 else None,
        )
        expected.append((*key, job_id))
    expected.sort()
    for limit in (1, 7, 40):
        got = claim(conn, *KINDS[:2], limit=limit)
        assert ids(got) == [key[2] for key in expected[:limit]]
        for row in got:
            release(conn, row)


def test_d16_returned_batch_is_in_order(conn: Connection) -> None:
    for number in range(200):
        enqueue(conn, priority=number * 37 % 11, available_at=at(number * 13 % 17))
    got = claim(conn, limit=150)
    order = [(row["priority"], row["available_at"], row["id"]) for row in got]
    assert order == sorted(order)
    assert len(got) == 150


def test_d16_batches_follow_one_another_in_order(conn: Connection) -> None:
    for number in range(120):
        enqueue(conn, KINDS[number % 3], priority=number * 7 % 5, available_at=at(number * 11 % 40))
    drained = []
    while got := claim(conn, *KINDS, limit=7):
        drained += [(row["priority"], row["available_at"], row["id"]) for row in got]
    assert drained == sorted(drained)
    assert len(drained) == 120


@pytest.mark.parametrize("limit", [1, 5, 29, 30, 31, 10000])
def test_limit_counts_over_all_lanes(conn: Connection, limit: int) -> None:
    for priority in range(10):
        for kind in KINDS:
            enqueue(conn, kind, priority=priority)
    got = claim(conn, *KINDS, limit=limit)
    assert len(got) == min(limit, 30)
    assert {row["claimed_together"] for row in got} == {min(limit, 30)}


@pytest.mark.parametrize("priority", [-(2**31), -1, 0, 2**31 - 1])
def test_any_int_is_a_priority(conn: Connection, priority: int) -> None:
    first, second = enqueue(conn, priority=priority), enqueue(conn, priority=2**31 - 1, available_at=at(2**31))
    assert ids(claim(conn, limit=5)) == [first]
    assert status(conn, second) == "pending"


def test_lane_that_is_not_due_hides_no_later_lane(conn: Connection) -> None:
    future = datetime.now(UTC) + timedelta(hours=1)
    for priority in range(5):
        enqueue(conn, priority=priority, available_at=future)
    due = enqueue(conn, priority=99)
    tenant_id = make_tenant(conn)
    enqueue(conn, priority=1, tenant_id=tenant_id, available_at=future)
    bound = enqueue(conn, priority=5, tenant_id=tenant_id)
    assert ids(claim(conn, tenant_ids=[tenant_id])) == [bound]
    assert ids(claim(conn)) == [due]


def test_repeated_kinds_and_tenants_count_once(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    made = [enqueue(conn, tenant_id=tenant_id) for _ in range(3)]
    assert ids(claim(conn, "reindex", "reindex", tenant_ids=[tenant_id, tenant_id], limit=10)) == made


# ---- locked rows (S4.2)


def test_claim_job_passes_over_rows_that_another_claim_holds(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    made = [enqueue(conn, KINDS[n % 2], priority=n % 2) for n in range(8)]
    other = connect(autocommit=False)
    taken = ids(claim(other, *KINDS, limit=3))
    rest = ids(claim(conn, *KINDS, limit=100))
    assert sorted(taken + rest) == sorted(made)
    other.rollback()
    assert ids(claim(conn, *KINDS, limit=100)) == taken


def test_claim_job_tops_up_from_other_lanes_what_is_held_in_one(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    """A lane of a level that comes up short is made up for by the others of the same level."""
    first = [enqueue(conn, "reindex", priority=1, available_at=at(n)) for n in range(4)]
    second = [enqueue(conn, "cleanup_jobs", priority=1, available_at=at(10 + n)) for n in range(4)]
    other = connect(autocommit=False)
    assert ids(claim(other, "reindex", limit=3)) == first[:3]
    assert ids(claim(conn, "reindex", "cleanup_jobs", limit=4)) == [first[3], *second[:3]]


# ---- filters (D13, D14, S3.3)


def test_b28_no_tenants_given_is_all_tenants_and_the_platform(conn: Connection) -> None:
    made = {enqueue(conn), enqueue(conn, tenant_id=make_tenant(conn))}
    assert set(ids(claim(conn, limit=5, tenant_ids=None))) == made


@pytest.mark.parametrize("tenant_ids", [[], [None], [uuid4()]])
def test_b28_empty_or_unknown_tenants_claim_nothing(conn: Connection, tenant_ids: Any) -> None:
    enqueue(conn)
    enqueue(conn, tenant_id=make_tenant(conn))
    assert claim(conn, tenant_ids=tenant_ids, limit=5) == []


def test_claim_job_of_some_tenants(conn: Connection) -> None:
    tenants = [make_tenant(conn) for _ in range(3)]
    made = [enqueue(conn, tenant_id=tenant, priority=9 - n) for n, tenant in enumerate(tenants)]
    enqueue(conn)
    assert ids(claim(conn, tenant_ids=[tenants[0], None, tenants[2]], limit=5)) == [made[2], made[0]]


def test_order_over_tenants_and_kinds(conn: Connection) -> None:
    tenants = [make_tenant(conn) for _ in range(3)]
    expected = []
    for number in range(36):
        key = (number * 5 % 3, at(number * 7 % 11))
        job_id = enqueue(conn, KINDS[number % 2], priority=key[0], available_at=key[1], tenant_id=tenants[number % 3])
        expected.append((*key, job_id))
    assert ids(claim(conn, *KINDS, tenant_ids=tenants, limit=30)) == [key[2] for key in sorted(expected)[:30]]


@pytest.mark.parametrize("kinds", [[], ["nope"], [None], ["REINDEX"]])
def test_d14_unknown_kinds_claim_nothing_and_are_no_error(conn: Connection, kinds: Any) -> None:
    enqueue(conn)
    assert call(conn, "claim_job", worker_id="w", kinds=kinds) == []


def test_b81_unknown_kind_beside_a_known_one(conn: Connection) -> None:
    job_id, other = enqueue(conn), enqueue(conn, "cleanup_jobs")
    assert ids(claim(conn, "nope", "reindex", limit=5)) == [job_id]
    assert job(conn, other)["attempts"] == 0


@pytest.mark.parametrize(
    "parameters",
    [
        {"kinds": None},
        {"worker_id": None},
        {"worker_id": ""},
        {"limit": 0},
        {"limit": -1},
        {"limit": 10001},
        {"limit": 2**31 - 1},
    ],
)
def test_d13_claim_job_refuses(conn: Connection, parameters: Any) -> None:
    enqueue(conn)
    before = snapshot(conn)
    with refused("MJ005"):
        call(conn, "claim_job", **{"worker_id": "w", "kinds": ["reindex"], **parameters})
    assert snapshot(conn) == before


def test_d13_null_limit_is_one(conn: Connection) -> None:
    enqueue(conn), enqueue(conn)
    assert len(call(conn, "claim_job", worker_id="w", kinds=["reindex"], limit=None, floor=None)) == 1
    assert len(call(conn, "claim_job", worker_id="w", kinds=["reindex"])) == 1


def test_paused_kind_is_left_out(conn: Connection) -> None:
    paused, other = enqueue(conn, priority=1), enqueue(conn, "cleanup_jobs", priority=2)
    call(conn, "pause_kind", job_kind="reindex")
    assert ids(claim(conn, *KINDS, limit=5)) == [other]
    conn.execute("update mdm.aa_job_kind set paused_until = clock_timestamp() where job_kind = 'reindex'")
    assert ids(claim(conn, *KINDS, limit=5)) == [paused]


# ---- floors (design 5.2)


def floor(**kinds: dict[int, datetime]) -> Jsonb:
    return Jsonb(
        {kind: {str(priority): time.isoformat() for priority, time in lanes.items()} for kind, lanes in kinds.items()}
    )


def test_floor_hides_what_lies_below(conn: Connection) -> None:
    below, there, above = (enqueue(conn, priority=1, available_at=at(second)) for second in (9, 10, 11))
    assert ids(claim(conn, limit=9, floor=floor(reindex={1: at(10)}))) == [there, above]
    assert ids(claim(conn, limit=9)) == [below]


def test_floor_looks_at_the_listed_priorities_only(conn: Connection) -> None:
    made = {priority: enqueue(conn, priority=priority, available_at=at(0)) for priority in (1, 2, 3, -4)}
    assert ids(claim(conn, limit=9, floor=floor(reindex={3: PAST, -4: PAST, 77: PAST}))) == [made[-4], made[3]]
    assert ids(claim(conn, limit=9, floor=floor(reindex={}))) == []
    assert ids(claim(conn, limit=9)) == [made[1], made[2]]


def test_floor_of_one_kind_leaves_the_others_exact(conn: Connection) -> None:
    hidden = enqueue(conn, "reindex", priority=1, available_at=at(0))
    other = enqueue(conn, "cleanup_jobs", priority=5, available_at=at(0))
    given = floor(reindex={1: at(5)}, index_sync={1: at(5)})
    assert ids(claim(conn, *KINDS, limit=9, floor=given)) == [other]
    assert status(conn, hidden) == "pending"


def test_floor_of_an_empty_object_is_the_exact_scan(conn: Connection) -> None:
    job_id = enqueue(conn, available_at=at(0))
    assert ids(claim(conn, floor=Jsonb({}))) == [job_id]


def test_floor_holds_for_bound_workers_too(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    _below, there = (enqueue(conn, priority=1, tenant_id=tenant_id, available_at=at(second)) for second in (1, 9))
    assert ids(claim(conn, limit=9, tenant_ids=[tenant_id], floor=floor(reindex={1: at(5)}))) == [there]


@pytest.mark.parametrize(
    "given",
    [
        [],
        5,
        "x",
        None,
        {"reindex": 5},
        {"reindex": []},
        {"reindex": None},
        {"reindex": {"x": "2020-01-01"}},
        {"reindex": {"1.5": "2020-01-01"}},
        {"reindex": {"2147483648": "2020-01-01"}},
        {"reindex": {"": "2020-01-01"}},
        {"reindex": {"1": "soon"}},
        {"reindex": {"1": 5}},
        {"reindex": {"1": {}}},
        {"reindex": {"1": None}},
        {"reindex": {"1": "999999-01-01"}},
        {"reindex": {"1": "2026-02-31T00:00:00+00:00"}},
        {"reindex": {"1": "2020-01-01", "2": "soon"}},
        {"nope": {"1": "soon"}},
    ],
    ids=repr,
)
def test_malformed_floor_is_refused(conn: Connection, given: Any) -> None:
    enqueue(conn)
    before = snapshot(conn)
    with refused("MJ005", match="p_floor is malformed"):
        claim(conn, floor=Jsonb(given))
    assert snapshot(conn) == before


def test_malformed_floor_is_refused_whatever_the_claim_serves(conn: Connection) -> None:
    call(conn, "pause_kind", job_kind="reindex")
    for kinds in ([], ["nope"], ["reindex"], ["cleanup_jobs"]):
        with refused("MJ005", match="p_floor is malformed"):
            call(conn, "claim_job", worker_id="w", kinds=kinds, floor=Jsonb({"reindex": {"1": "soon"}}))


def test_floor_opens_no_kind_that_is_left_out(conn: Connection) -> None:
    """Not a paused one, not one that is not registered, not one that the claim does not serve."""
    made = [enqueue(conn, kind, priority=1, available_at=at(5)) for kind in KINDS]
    conn.execute("update mdm.aa_job set job_kind = 'nope' where id = %s", (made[0],))
    call(conn, "pause_kind", job_kind=KINDS[1])
    given = floor(**{kind: {1: at(0)} for kind in (*KINDS, "nope")})
    assert ids(claim(conn, "nope", KINDS[1], limit=9, floor=given)) == []
    assert ids(claim(conn, *KINDS, limit=9, floor=given)) == [made[2]]


def test_floor_keeps_the_order_over_kinds_and_priorities(conn: Connection) -> None:
    """Lanes of a floor that have nothing, and kinds without a floor, stand between those that have something."""
    made = {
        (kind, priority): enqueue(conn, kind, priority=priority, available_at=at(priority + n))
        for n, kind in enumerate(KINDS)
        for priority in (1, 3, 5)
    }
    given = floor(**{kind: {priority: at(0) for priority in (0, 1, 2, 3, 4)} for kind in KINDS[:2]})
    order = [(kind, priority) for priority in (1, 3, 5) for kind in KINDS if priority < 5 or kind == KINDS[2]]
    for limit in (1, 4, 9):
        got = claim(conn, *KINDS, limit=limit, floor=given)
        assert ids(got) == [made[lane] for lane in order[:limit]]
        for row in got:
            release(conn, row)


# ---- jobs that run alone (D3)


def run_alone(conn: Connection, *job_ids: int) -> None:
    conn.execute("update mdm.aa_job set run_alone = true where id = any(%s)", (list(job_ids),))


def test_d3_job_that_runs_alone_is_taken_by_itself_at_the_head(conn: Connection) -> None:
    made = [enqueue(conn) for _ in range(4)]
    run_alone(conn, made[0], made[1])
    assert [ids(claim(conn, limit=10)) for _ in range(4)] == [[made[0]], [made[1]], made[2:], []]
    assert [job(conn, job_id)["claimed_together"] for job_id in made] == [1, 1, 2, 2]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_d3_batch_ends_before_a_job_that_runs_alone(conn: Connection, place: int) -> None:
    made = [enqueue(conn) for _ in range(4)]
    run_alone(conn, made[place])
    assert ids(claim(conn, limit=10)) == made[:place]
    assert ids(claim(conn, limit=10)) == [made[place]]
    assert ids(claim(conn, limit=10)) == made[place + 1 :]
    assert [job(conn, job_id)["claimed_together"] for job_id in made[:place]] == [place] * place


def test_d3_cut_over_lanes(conn: Connection) -> None:
    """The cut follows the order over all kinds and priorities, and the rows behind it stay pending."""
    before = [enqueue(conn, KINDS[n % 2], priority=1, available_at=at(n)) for n in range(4)]
    alone = enqueue(conn, "reindex", priority=2, available_at=at(5))
    after = [enqueue(conn, "cleanup_jobs", priority=2, available_at=at(n)) for n in (6, 7)]
    run_alone(conn, alone)
    assert ids(claim(conn, *KINDS, limit=100)) == before
    assert [status(conn, job_id) for job_id in after] == ["pending", "pending"]
    assert ids(claim(conn, *KINDS, limit=100)) == [alone]
    assert ids(claim(conn, *KINDS, limit=100)) == after


def test_d3_jobs_of_one_instant_are_cut_by_id(conn: Connection) -> None:
    made = [enqueue(conn, kind, priority=1, available_at=at(0)) for kind in ("reindex", "cleanup_jobs", "index_sync")]
    run_alone(conn, made[1])
    assert ids(claim(conn, *KINDS, limit=100)) == made[:1]
    assert ids(claim(conn, *KINDS, limit=100)) == made[1:2]
    assert ids(claim(conn, *KINDS, limit=100)) == made[2:]


@pytest.mark.parametrize("end", ["fail", "release", "replay"])
def test_d3_mark_stays(conn: Connection, end: str) -> None:
    job_id = enqueue(conn)
    run_alone(conn, job_id)
    claimed = claim_one(conn)
    if end == "fail":
        fail(conn, claimed)
    elif end == "release":
        release(conn, claimed)
    else:
        fail(conn, claimed, retryable=False)
        call(conn, "replay_job", job_id=job_id)
    assert (status(conn, job_id), job(conn, job_id)["run_alone"]) == ("pending", True)


def test_superseded_jobs_make_room_for_others(conn: Connection) -> None:
    """Older generations at the head end as done; the batch is still full (D6)."""
    for number in range(5):
        old = make_job(conn, "running", idempotency_key=f"k{number}")
        enqueue(conn, idempotency_key=f"k{number}", on_conflict="update", available_at="2090-01-01 00:00+00")
        conn.execute(
            "update mdm.aa_job set status = 'pending', claimed_by = null, claimed_at = null, available_at = %s"
            " where id = %s",
            (PAST, old["id"]),
        )
    others = [enqueue(conn) for _ in range(3)]
    assert ids(claim(conn, limit=3)) == others
    assert value(conn, "select count(*) from mdm.aa_job where last_error like 'superseded by %%'") == 5


def test_superseded_job_that_runs_alone_hides_nothing(conn: Connection) -> None:
    """Only no row means an empty queue (D3)."""
    old = make_job(conn, "running", idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update", available_at="2090-01-01 00:00+00")
    conn.execute(
        "update mdm.aa_job set status = 'pending', claimed_by = null, claimed_at = null where id = %s", (old["id"],)
    )
    run_alone(conn, old["id"])
    other = enqueue(conn)
    assert ids(claim(conn, limit=3)) == [other]
    assert status(conn, old["id"]) == "done"


# ---- the killer in a batch of 50 (D3, B14)


def crash(conn: Connection, claimed: list[dict[str, Any]]) -> dict[int, str]:
    """Let the worker of these jobs die: nothing but silence, then recovery."""
    age(conn, *ids(claimed))
    return recover(conn)


def test_d3_killer_in_a_batch_of_50_dies_alone(conn: Connection) -> None:
    max_attempts = 3
    made = [enqueue(conn, max_attempts=max_attempts) for _ in range(50)]
    killer, killer_claims = made[25], 0
    while claimed := claim(conn, limit=50):
        if killer in ids(claimed):
            killer_claims += 1
            crash(conn, claimed)
        else:
            for row in claimed:
                finish(conn, row)
    assert killer_claims == max_attempts + 1
    assert (status(conn, killer), job(conn, killer)["attempts"]) == ("dlq", max_attempts)
    assert {status(conn, job_id) for job_id in made if job_id != killer} == {"done"}
    assert {job(conn, job_id)["attempts"] for job_id in made if job_id != killer} == {1}


def test_b14_killer_that_was_always_alone_is_dead_after_max_attempts(conn: Connection) -> None:
    job_id = enqueue(conn, max_attempts=3)
    outcomes = [crash(conn, claim(conn))[job_id] for _ in range(3)]
    assert outcomes == ["pending", "pending", "dlq"]
    assert claim(conn) == []
    assert job(conn, job_id)["last_error"] == "no sign of life from w1 [stale-claim recovered] x3"


def test_b14_kind_with_one_attempt(conn: Connection) -> None:
    make_kind(conn, "once", max_attempts=1)
    enqueue(conn, "once"), enqueue(conn, "once")
    assert set(crash(conn, claim(conn, "once", limit=2)).values()) == {"pending"}
    assert set(crash(conn, claim(conn, "once", limit=2)).values()) == {"dlq"}
    assert set(crash(conn, claim(conn, "once", limit=2)).values()) == {"dlq"}
    assert claim(conn, "once") == []


# ---- fences (B01, B02)


def test_b01_zombie_cannot_finish_what_another_runs(conn: Connection) -> None:
    first = make_job(conn, "running")
    crash(conn, [first])
    second = claim_one(conn, worker_id="w2")
    with refused("MJ001", detail="claimed again"):
        finish(conn, first)
    assert job(conn, first["id"])["claimed_by"] == "w2"
    finish(conn, second)
    assert value(conn, "select count(*) from mdm.aa_audit_log where action = 'job_done'") == 1


def test_b02_equal_worker_ids_own_only_what_they_claimed(conn: Connection) -> None:
    enqueue(conn), enqueue(conn)
    first, second = claim_one(conn, worker_id="same"), claim_one(conn, worker_id="same")
    with refused("MJ001", detail="claimed again"):
        call(conn, "finish_job", job_id=first["id"], lease_no=second["lease_no"])
    assert status(conn, first["id"]) == "running"
