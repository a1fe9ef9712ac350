"""Every cell of the table state x action of the design (S5, S8, S9, D2, D3, D6), with own, foreign and old leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs import (
    STATES,
    Connection,
    Row,
    actions,
    age,
    audit,
    call,
    changes,
    claim_one,
    enqueue,
    fail,
    finish,
    job,
    make_job,
    recover,
    refused,
    release,
    rows,
    snapshot,
    status,
    stored,
)

FOREIGN = 4711


class Some:
    """Equal to everything but NULL: some time, some lease."""

    def __eq__(self, other: object) -> bool:
        return other is not None

    __hash__ = None  # type: ignore[assignment]


SOME = Some()


# ---- leases that do not hold: a job, the lease that is shown, and what MJ001 says became of it (D2)


def pending_never_claimed(conn: Connection) -> tuple[int, int | None]:
    return enqueue(conn), FOREIGN


def pending_released(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "running")
    release(conn, old)
    return old["id"], old["lease_no"]


def pending_retried(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "running")
    fail(conn, old)
    return old["id"], old["lease_no"]


def pending_retried_foreign(conn: Connection) -> tuple[int, int | None]:
    return pending_retried(conn)[0], FOREIGN


def pending_recovered(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "running")
    age(conn, old["id"])
    recover(conn)
    return old["id"], old["lease_no"]


def pending_replayed(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "dlq")
    call(conn, "replay_job", job_id=old["id"])
    return old["id"], old["lease_no"]


def running_foreign(conn: Connection) -> tuple[int, int | None]:
    return make_job(conn, "running")["id"], FOREIGN


def running_null(conn: Connection) -> tuple[int, int | None]:
    return make_job(conn, "running")["id"], None


def running_again(conn: Connection) -> tuple[int, int | None]:
    job_id, old = pending_recovered(conn)
    claim_one(conn)
    return job_id, old


def done_own(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "done")
    return old["id"], old["lease_no"]


def done_foreign(conn: Connection) -> tuple[int, int | None]:
    return make_job(conn, "done")["id"], FOREIGN


def done_old(conn: Connection) -> tuple[int, int | None]:
    job_id, old = pending_recovered(conn)
    finish(conn, claim_one(conn))
    return job_id, old


def done_superseded(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "running", idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update")
    fail(conn, old)
    return old["id"], old["lease_no"]


def done_superseded_by_recovery(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "running", idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update")
    age(conn, old["id"])
    recover(conn)
    return old["id"], old["lease_no"]


def failed_own(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "failed")
    return old["id"], old["lease_no"]


def failed_foreign(conn: Connection) -> tuple[int, int | None]:
    return make_job(conn, "failed")["id"], FOREIGN


def failed_never_claimed(conn: Connection) -> tuple[int, int | None]:
    job_id = enqueue(conn)
    call(conn, "stop_job", job_id=job_id)
    return job_id, FOREIGN


def dlq_own(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "dlq")
    return old["id"], old["lease_no"]


def dlq_foreign(conn: Connection) -> tuple[int, int | None]:
    return make_job(conn, "dlq")["id"], FOREIGN


def dlq_recovered(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "running", max_attempts=1)
    age(conn, old["id"])
    assert recover(conn) == {old["id"]: "dlq"}
    return old["id"], old["lease_no"]


def gone(conn: Connection) -> tuple[int, int | None]:
    old = make_job(conn, "dlq")
    call(conn, "discard_job", job_id=old["id"])
    return old["id"], old["lease_no"]


LOST = {
    pending_never_claimed: "recovered",
    pending_released: "already ended by this lease",
    pending_retried: "already ended by this lease",
    pending_retried_foreign: "claimed again",
    pending_recovered: "recovered",
    pending_replayed: "recovered",
    running_foreign: "claimed again",
    running_null: "claimed again",
    running_again: "claimed again",
    done_own: "already ended by this lease",
    done_foreign: "claimed again",
    done_old: "claimed again",
    done_superseded: "already ended by this lease",
    done_superseded_by_recovery: "recovered",
    failed_own: "stopped",
    failed_foreign: "claimed again",
    failed_never_claimed: "recovered",
    dlq_own: "already ended by this lease",
    dlq_foreign: "claimed again",
    dlq_recovered: "recovered",
    gone: "gone",
}
lost_leases = pytest.mark.parametrize(
    ("situation", "detail"), LOST.items(), ids=lambda value: getattr(value, "__name__", "")
)


@lost_leases
@pytest.mark.parametrize(
    ("function", "more"),
    [("finish_job", {}), ("fail_job", {"error": "late"}), ("release_job", {}), ("check_lease", {})],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_b01_b03_lost_lease_is_refused_and_changes_nothing(
    conn: Connection, situation: Callable[[Connection], tuple[int, int]], detail: str, function: str, more: Row
) -> None:
    job_id, lease_no = situation(conn)
    before = snapshot(conn)
    with refused("MJ001", detail=detail, match=f"lease lost on job {job_id}"):
        call(conn, function, job_id=job_id, lease_no=lease_no, **more)
    assert snapshot(conn) == before


@lost_leases
@pytest.mark.parametrize("function", ["finish_jobs", "release_jobs", "extend_jobs"])
def test_b03_lost_lease_is_passed_over_by_the_plural_calls(
    conn: Connection, situation: Callable[[Connection], tuple[int, int]], detail: str, function: str
) -> None:
    job_id, lease_no = situation(conn)
    before = snapshot(conn)
    answer = call(conn, function, job_ids=[job_id], lease_nos=[lease_no])
    assert answer == ([{"job_id": job_id, "alive": False}] if function == "extend_jobs" else [])
    assert snapshot(conn) == before


# ---- the own lease of a running job: exactly these columns change, exactly these audit rows appear

BACK = {"status": "pending", "claimed_by": None, "claimed_at": None}


@pytest.mark.parametrize(
    ("function", "more", "parameters", "expected", "audited"),
    [
        ("finish_job", {}, {}, {"status": "done", "completed_at": SOME}, ["job_done"]),
        ("fail_job", {"error": "e"}, {}, {**BACK, "available_at": SOME, "last_error": "e"}, []),
        (
            "fail_job",
            {"error": "e"},
            {"max_attempts": 1},
            {"status": "dlq", "completed_at": SOME, "last_error": "e"},
            ["job_dlq"],
        ),
        (
            "fail_job",
            {"error": "e", "retryable": False},
            {},
            {"status": "dlq", "completed_at": SOME, "last_error": "e"},
            ["job_dlq"],
        ),
        ("release_job", {}, {}, {**BACK, "attempts": 0, "releases": 1}, []),
        ("check_lease", {}, {}, {}, []),
    ],
)
def test_running_job_obeys_its_own_lease(
    conn: Connection, function: str, more: Row, parameters: Row, expected: Row, audited: list[str]
) -> None:
    before = make_job(conn, "running", **parameters)
    call(conn, function, job_id=before["id"], lease_no=before["lease_no"], **more)
    assert changes(before, job(conn, before["id"])) == expected
    assert actions(conn, before["id"]) == ["job_enqueued", *audited]


@pytest.mark.parametrize(
    ("function", "expected", "audited"),
    [
        ("finish_jobs", {"status": "done", "completed_at": SOME}, ["job_done"]),
        ("release_jobs", {**BACK, "attempts": 0, "releases": 1}, []),
        ("extend_jobs", {"heartbeat_at": SOME}, []),
    ],
)
def test_running_job_obeys_its_own_lease_in_the_plural(
    conn: Connection, function: str, expected: Row, audited: list[str]
) -> None:
    before = make_job(conn, "running")
    [answer] = call(conn, function, job_ids=[before["id"]], lease_nos=[before["lease_no"]])
    assert answer in ({function: before["id"]}, {"job_id": before["id"], "alive": True})
    assert changes(before, job(conn, before["id"])) == expected
    assert actions(conn, before["id"]) == ["job_enqueued", *audited]


@pytest.mark.parametrize(
    ("function", "more"),
    [("fail_job", {"error": "e"}), ("fail_job", {"error": "e", "retryable": False}), ("release_job", {})],
)
def test_running_job_ends_superseded(conn: Connection, function: str, more: Row) -> None:
    before = make_job(conn, "running", idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update")
    call(conn, function, job_id=before["id"], lease_no=before["lease_no"], **more)
    assert changes(before, job(conn, before["id"])) == {
        "status": "done",
        "completed_at": SOME,
        "last_error": f"superseded by {newer}",
    }
    assert actions(conn, before["id"]) == ["job_enqueued", "job_done"]
    assert audit(conn, before["id"])[-1]["payload"] == {"job_kind": "reindex", "superseded_by": newer}
    assert status(conn, newer) == "pending"


def test_finish_of_a_superseded_job_is_an_ordinary_success(conn: Connection) -> None:
    before = make_job(conn, "running", idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update")
    finish(conn, before)
    assert changes(before, job(conn, before["id"])) == {"status": "done", "completed_at": SOME}


# ---- recovery


@pytest.mark.parametrize("state", STATES)
def test_recovery_leaves_all_but_stale_jobs(conn: Connection, state: str) -> None:
    make_job(conn, state)
    before = snapshot(conn)
    assert recover(conn) == {}
    assert snapshot(conn) == before


@pytest.mark.parametrize("state", ["done", "failed", "dlq"])
def test_recovery_leaves_old_ended_jobs(conn: Connection, state: str) -> None:
    age(conn, make_job(conn, state)["id"])
    before = snapshot(conn)
    assert recover(conn) == {}
    assert snapshot(conn) == before


NOTE = "[stale-claim recovered]"


def test_recovery_of_a_stale_job(conn: Connection) -> None:
    before = make_job(conn, "running")
    age(conn, before["id"])
    assert recover(conn) == {before["id"]: "pending"}
    assert changes(before, job(conn, before["id"])) == {**BACK, "lease_no": None, "recoveries": 1, "last_error": NOTE}
    assert actions(conn, before["id"]) == ["job_enqueued"]


def test_recovery_of_a_stale_job_without_attempts_left(conn: Connection) -> None:
    make_job(conn, "running", max_attempts=1)
    [before] = rows(conn, "update mdm.aa_job set claimed_at = claimed_at - interval '9 h' returning *")
    assert recover(conn) == {before["id"]: "dlq"}
    assert changes(before, job(conn, before["id"])) == {
        "status": "dlq",
        "lease_no": None,
        "recoveries": 1,
        "completed_at": SOME,
        "last_error": f"no sign of life from w1 {NOTE}",
    }
    assert actions(conn, before["id"]) == ["job_enqueued", "job_dlq"]


# ---- enqueue 'update' of the same key


def test_update_changes_a_pending_job_in_place(conn: Connection) -> None:
    before = make_job(conn, "pending", idempotency_key="k")
    same = enqueue(conn, payload={"new": 1}, idempotency_key="k", on_conflict="update", priority=7)
    assert same == before["id"]
    assert changes(before, job(conn, same)) == {"payload": {"new": 1}, "priority": 7}
    assert actions(conn, same) == ["job_enqueued", "job_enqueued"]
    assert audit(conn, same)[-1]["payload"]["updated"] is True


@pytest.mark.parametrize("state", ["running", "done", "failed", "dlq"])
def test_update_makes_the_next_generation_beside_any_other_state(conn: Connection, state: str) -> None:
    before = make_job(conn, state, idempotency_key="k")
    newer = enqueue(conn, payload={"new": 1}, idempotency_key="k", on_conflict="update")
    assert newer != before["id"]
    assert changes(before, job(conn, before["id"])) == {}
    assert job(conn, newer)["key_no"] == 1
    assert job(conn, newer)["status"] == "pending"
    assert actions(conn, newer) == ["job_enqueued"]


def test_update_makes_a_first_generation_when_the_job_is_gone(conn: Connection) -> None:
    before = make_job(conn, "dlq", idempotency_key="k")
    call(conn, "discard_job", job_id=before["id"])
    newer = enqueue(conn, idempotency_key="k", on_conflict="update")
    assert (newer != before["id"], job(conn, newer)["key_no"]) == (True, 0)


@pytest.mark.parametrize("state", STATES)
def test_b37_ignore_gives_the_newest_job_whatever_its_state(conn: Connection, state: str) -> None:
    before = make_job(conn, state, idempotency_key="k")
    all_before = snapshot(conn)
    assert enqueue(conn, payload={"other": 1}, idempotency_key="k", priority=1) == before["id"]
    assert snapshot(conn) == all_before


# ---- the acts of an administrator

ADMIN = {
    ("pending", "replay_job"): None,
    ("running", "replay_job"): None,
    ("done", "replay_job"): None,
    ("failed", "replay_job"): "pending",
    ("dlq", "replay_job"): "pending",
    ("pending", "discard_job"): "gone",
    ("running", "discard_job"): None,
    ("done", "discard_job"): None,
    ("failed", "discard_job"): "gone",
    ("dlq", "discard_job"): "gone",
    ("pending", "stop_job"): "failed",
    ("running", "stop_job"): "failed",
    ("done", "stop_job"): None,
    ("failed", "stop_job"): None,
    ("dlq", "stop_job"): "failed",
}
OUTCOMES = {"replay_job": "replayed", "discard_job": "discarded", "stop_job": "stopped"}
AUDITED = {"replay_job": "job_replay", "discard_job": "job_discard", "stop_job": "job_stop"}


ADMIN_CHANGES: dict[str, Row] = {
    "replay_job": {**BACK, "attempts": 0, "available_at": SOME, "lease_no": None, "completed_at": None},
    "discard_job": {},
    "stop_job": {"status": "failed", "last_error": "stopped: because", "completed_at": SOME},
}


@pytest.mark.parametrize(("state", "function"), [cell for cell, becomes in ADMIN.items() if becomes is None])
def test_b65_admin_act_is_refused_in_the_wrong_state(conn: Connection, state: str, function: str) -> None:
    job_id = make_job(conn, state)["id"]
    before = snapshot(conn)
    with refused("MJ004", match=f"job {job_id} is {state} and cannot be {OUTCOMES[function]}"):
        call(conn, function, job_id=job_id)
    assert snapshot(conn) == before


@pytest.mark.parametrize(("state", "function"), [cell for cell, becomes in ADMIN.items() if becomes is not None])
def test_admin_act_does_what_it_says(conn: Connection, state: str, function: str) -> None:
    before = make_job(conn, state)
    audited = actions(conn, before["id"])
    assert call(conn, function, job_id=before["id"], reason="because") == [{function: OUTCOMES[function]}]
    assert status(conn, before["id"]) == ADMIN[state, function]
    assert actions(conn, before["id"]) == [*audited, AUDITED[function]]
    payload = audit(conn, before["id"])[-1]["payload"]
    assert (payload["status"], payload["reason"], payload["job_kind"]) == (state, "because", "reindex")
    after = stored(conn, before["id"]) or before
    assert changes(before, after) == ADMIN_CHANGES[function]


@pytest.mark.parametrize("function", ["replay_job", "discard_job", "stop_job"])
@pytest.mark.parametrize("job_id", [None, -1, 2**62])
def test_admin_act_on_no_job(conn: Connection, function: str, job_id: int | None) -> None:
    with refused("MJ002", match=f"no job {'NULL' if job_id is None else job_id}"):
        call(conn, function, job_id=job_id)


@pytest.mark.parametrize("state", ["failed", "dlq"])
def test_b33_replay_of_an_older_generation_is_refused(conn: Connection, state: str) -> None:
    older = make_job(conn, state, idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update")
    before = snapshot(conn)
    with refused("MJ004", detail=f"superseded by {newer}"):
        call(conn, "replay_job", job_id=older["id"])
    assert snapshot(conn) == before


def test_stop_of_a_running_job_ends_its_lease(conn: Connection) -> None:
    before = make_job(conn, "running")
    call(conn, "stop_job", job_id=before["id"])
    with refused("MJ001", detail="stopped"):
        finish(conn, before)
    assert status(conn, before["id"]) == "failed"
