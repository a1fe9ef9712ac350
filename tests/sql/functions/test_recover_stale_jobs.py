"""recover_stale_jobs (S8, D3, D5, D6, D9, D13): who is stale, what becomes of it, what never stops the sweep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobs import (
    KIND,
    Connection,
    actions,
    age,
    audit,
    call,
    claim,
    claim_one,
    enqueue,
    fail,
    ids,
    job,
    make_due,
    make_job,
    make_kind,
    make_tenant,
    recover,
    refused,
    status,
    value,
    violations,
)

NOTE = "[stale-claim recovered]"


def test_b06_stale_ttl_is_the_kinds(conn: Connection) -> None:
    email = make_job(conn, "running", "email_send", tenant_id=make_tenant(conn))
    index = make_job(conn, "running", "index_sync")
    age(conn, email["id"], index["id"], by=timedelta(minutes=10))
    assert recover(conn) == {email["id"]: "pending"}


def test_stale_ttl_is_read_at_the_recovery(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    age(conn, claimed["id"], by=timedelta(minutes=1))
    assert recover(conn) == {}
    make_kind(conn, "reindex", stale_ttl="15 seconds")
    assert recover(conn) == {claimed["id"]: "pending"}


def test_b08_legal_long_jobs_hide_nothing(conn: Connection) -> None:
    for _ in range(10):
        age(conn, make_job(conn, "running", "index_sync")["id"], by=timedelta(minutes=30))
    email = make_job(conn, "running", "email_send", tenant_id=make_tenant(conn))
    age(conn, email["id"], by=timedelta(minutes=6))
    assert recover(conn, limit=1) == {email["id"]: "pending"}


def test_legal_long_jobs_of_the_same_kind_hide_nothing(conn: Connection) -> None:
    """Old claims with fresh heartbeats stand before a stale one in the index."""
    beating = [make_job(conn, "running") for _ in range(10)]
    stale = make_job(conn, "running")
    age(conn, *ids(beating))
    leases = [row["lease_no"] for row in beating]
    call(conn, "extend_jobs", job_ids=ids(beating), lease_nos=leases)
    age(conn, stale["id"], by=timedelta(hours=1))
    assert recover(conn, limit=1) == {stale["id"]: "pending"}


def test_d13_limit_counts_jobs_over_all_kinds(conn: Connection) -> None:
    made = [make_job(conn, "running", kind) for kind in ("cleanup_jobs", "reindex", "index_sync") for _ in range(2)]
    age(conn, *ids(made))
    assert [len(recover(conn, limit=limit)) for limit in (1, 3, 10000, None)] == [1, 3, 2, 0]


@pytest.mark.parametrize("limit", [0, -1, 10001])
def test_d13_recover_refuses_other_limits(conn: Connection, limit: int) -> None:
    with refused("MJ005", match=f"p_limit is {limit}"):
        recover(conn, limit=limit)


# ---- attempts (S8.3, D3, B14)


def test_s83_recovery_charges_no_more_than_the_claim_did(conn: Connection) -> None:
    job_id = enqueue(conn)
    for attempt in (1, 2, 3):
        claim_one(conn)
        age(conn, job_id)
        recover(conn)
        assert (job(conn, job_id)["attempts"], job(conn, job_id)["recoveries"]) == (attempt, attempt)


@pytest.mark.parametrize(("together", "attempts", "alone"), [(1, 1, False), (2, 0, True), (50, 0, True)])
def test_d3_batch_gets_its_attempt_back_and_runs_alone(
    conn: Connection, together: int, attempts: int, alone: bool
) -> None:
    for _ in range(together):
        enqueue(conn)
    claimed = claim(conn, limit=together)
    age(conn, *ids(claimed))
    assert recover(conn) == dict.fromkeys(ids(claimed), "pending")
    for row in claimed:
        after = job(conn, row["id"])
        assert (after["attempts"], after["run_alone"], after["recoveries"]) == (attempts, alone, 1)


def test_d3_last_attempt_in_a_batch_is_not_the_end(conn: Connection) -> None:
    made = [enqueue(conn, max_attempts=1) for _ in range(2)]
    age(conn, *ids(claim(conn, limit=2)))
    assert recover(conn) == dict.fromkeys(made, "pending")
    claim_one(conn)
    age(conn, made[0])
    assert recover(conn) == {made[0]: "dlq"}
    assert violations(conn) == {}


def test_d3_mark_stays_when_it_crashes_alone(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    conn.execute("update mdm.aa_job set run_alone = true")
    age(conn, claimed["id"])
    recover(conn)
    assert job(conn, claimed["id"])["run_alone"] is True


# ---- company: other slots of the same process (D3)


def running_by(conn: Connection, worker_id: str, **parameters: Any) -> int:
    """Enqueue a job and let this worker claim it, by itself."""
    job_id = enqueue(conn, **parameters)
    [claimed] = claim(conn, parameters.get("job_kind", KIND), worker_id=worker_id)
    assert claimed["id"] == job_id
    return job_id


def charged(conn: Connection, *job_ids: int) -> list[tuple[int, bool]]:
    return [(row["attempts"], row["run_alone"]) for row in (job(conn, job_id) for job_id in job_ids)]


def test_d3_jobs_in_several_slots_of_a_dead_process_get_their_attempts_back(conn: Connection) -> None:
    together = [running_by(conn, f"host/1/{slot}", max_attempts=1) for slot in "abc"]
    others = [running_by(conn, worker) for worker in ("host/2/a", "host/1", "host/1/a/b", "1/a", "w1", "/1/a")]
    age(conn, *together, *others)
    assert recover(conn) == dict.fromkeys([*together, *others], "pending")
    assert charged(conn, *together) == [(0, True)] * 3
    assert charged(conn, *others) == [(1, False)] * 6
    assert violations(conn) == {}


def test_d3_jobs_of_one_slot_keep_each_others_attempts(conn: Connection) -> None:
    """A worker that claims one by one and ends nothing is no process with several slots."""
    made = [running_by(conn, "host/1/a") for _ in range(3)]
    age(conn, *made)
    recover(conn)
    assert charged(conn, *made) == [(1, False)] * 3


def test_d3_company_of_a_batch_in_another_slot(conn: Connection) -> None:
    single = running_by(conn, "host/1/a", max_attempts=1)
    batch = [enqueue(conn) for _ in range(3)]
    claim(conn, worker_id="host/1/b", limit=3)
    age(conn, single, *batch)
    recover(conn)
    assert charged(conn, single, *batch) == [(0, True)] * 4


@pytest.mark.parametrize("first", ["email_send", "index_sync"])
def test_d3_company_whose_recovery_comes_later(conn: Connection, first: str) -> None:
    """Whichever stale_ttl is over first (5 min and 2 h): both were there when the process died."""
    tenant_id = make_tenant(conn)
    kinds = [first, "index_sync" if first == "email_send" else "email_send"]
    made = [running_by(conn, f"host/1/{kind}", job_kind=kind, tenant_id=tenant_id, max_attempts=1) for kind in kinds]
    age(conn, *made, by=timedelta(minutes=10))
    assert list(recover(conn).values()) == ["pending"]
    age(conn, *made, by=timedelta(hours=3))
    assert list(recover(conn).values()) == ["pending"]
    assert charged(conn, *made) == [(0, True)] * 2


@pytest.mark.parametrize(("apart", "together"), [(7, True), (8, False)])
def test_d3_processes_of_the_same_name_at_different_times(conn: Connection, apart: int, together: bool) -> None:
    """Host and pid come again in containers: half a stale_ttl (15 min here) between the last signs is too much."""
    make_kind(conn, KIND, stale_ttl="15 minutes")
    made = [running_by(conn, f"host/1/{slot}") for slot in "ab"]
    age(conn, *made)
    age(conn, made[0], by=timedelta(minutes=apart))
    recover(conn)
    assert charged(conn, *made) == [(0, True) if together else (1, False)] * 2


def test_d3_company_that_lives_is_none(conn: Connection) -> None:
    """One lease is lost, the other slot's heartbeats go on: nothing crashed."""
    lost, alive = (running_by(conn, f"host/1/{slot}") for slot in "ab")
    age(conn, lost)
    assert recover(conn) == {lost: "pending"}
    assert charged(conn, lost, alive) == [(1, False)] * 2
    assert job(conn, alive)["claimed_together"] == 1


def test_d3_several_that_live_beside_a_silent_one_are_alone_still(conn: Connection) -> None:
    silent = running_by(conn, "host/1/a")
    alive = [running_by(conn, f"host/1/{slot}") for slot in "bc"]
    age(conn, silent)
    assert recover(conn) == {silent: "pending"}
    assert [job(conn, job_id)["claimed_together"] for job_id in alive] == [1, 1]


def test_d3_killer_that_never_is_alone_dies_all_the_same(conn: Connection) -> None:
    """It kills late, when others have started: spared five times, then charged until it is dead."""
    killer = enqueue(conn, priority=1, max_attempts=2)
    crashes = 0
    while status(conn, killer) != "dlq":
        assert [row["id"] for row in claim(conn, worker_id="host/1/a")] == [killer]
        neighbour = running_by(conn, "host/1/b", max_attempts=1)
        age(conn, killer, neighbour)
        recover(conn)
        assert charged(conn, neighbour) == [(0, True)]
        conn.execute("delete from mdm.aa_job where id = %s", (neighbour,))
        crashes += 1
        assert crashes <= 5 + 2
    assert crashes == 5 + 2
    assert "no sign of life from host/1/a" in job(conn, killer)["last_error"]


def test_d3_company_that_is_just_finishing_is_left_to_it(conn: Connection, connect: Callable[..., Connection]) -> None:
    dead, held = (running_by(conn, f"host/1/{slot}") for slot in "ab")
    lease_no = job(conn, held)["lease_no"]
    age(conn, dead, held)
    finishing = connect(autocommit=False)
    call(finishing, "finish_job", job_id=held, lease_no=lease_no)
    assert recover(conn) == {dead: "pending"}
    finishing.commit()
    assert (status(conn, held), charged(conn, dead)) == ("done", [(0, True)])


def test_b14_death_by_recovery_is_audited_with_a_reason(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    claimed = make_job(conn, "running", tenant_id=tenant_id, max_attempts=1)
    age(conn, claimed["id"])
    assert recover(conn) == {claimed["id"]: "dlq"}
    row = audit(conn, claimed["id"])[-1]
    assert (row["action"], row["tenant_id"]) == ("job_dlq", tenant_id)
    assert row["payload"] == {
        "job_kind": "reindex",
        "last_error": f"no sign of life from w1 {NOTE}",
        "attempts": 1,
    }


def test_d15_recovery_to_pending_is_not_audited(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    age(conn, claimed["id"])
    recover(conn)
    assert actions(conn, claimed["id"]) == ["job_enqueued"]


def test_recovered_job_keeps_its_place(conn: Connection) -> None:
    first, second = enqueue(conn), enqueue(conn)
    before = claim_one(conn)["available_at"]
    age(conn, first)
    recover(conn)
    assert job(conn, first)["available_at"] == before
    assert ids(claim(conn, limit=2)) == [first, second]


# ---- the note (S8.1, D9)


def test_d9_note_stands_once_behind_the_error_and_counts(conn: Connection) -> None:
    claimed = make_job(conn, "running", max_attempts=9)
    fail(conn, claimed, "first error")
    texts = []
    for _ in range(3):
        make_due(conn, claimed["id"])
        claim_one(conn)
        age(conn, claimed["id"])
        recover(conn)
        texts.append(job(conn, claimed["id"])["last_error"])
    assert texts == [f"first error {NOTE}", f"first error {NOTE} x2", f"first error {NOTE} x3"]


def test_d9_long_error_is_cut_for_the_note(conn: Connection) -> None:
    claimed = make_job(conn, "running")
    fail(conn, claimed, "é" * 9000)
    make_due(conn, claimed["id"])
    claim_one(conn)
    age(conn, claimed["id"])
    recover(conn)
    text = job(conn, claimed["id"])["last_error"]
    assert text.endswith(f"é {NOTE}")
    assert 8190 <= len(text.encode()) <= 8192


# ---- one bad row never stops the others (invariant 5)


def test_b10_superseded_job_does_not_stop_the_sweep(conn: Connection) -> None:
    first = make_job(conn, "running", idempotency_key="k")
    newer = enqueue(conn, idempotency_key="k", on_conflict="update", available_at="2090-01-01 00:00+00")
    third = make_job(conn, "running")
    age(conn, first["id"], third["id"])
    assert recover(conn) == {first["id"]: "done", third["id"]: "pending"}
    row = job(conn, first["id"])
    assert (row["last_error"], row["lease_no"], row["recoveries"]) == (f"superseded by {newer}", None, 1)
    assert actions(conn, first["id"]) == ["job_enqueued", "job_done"]


def test_b10_superseded_killer_is_done_not_dead(conn: Connection) -> None:
    first = make_job(conn, "running", idempotency_key="k", max_attempts=1)
    enqueue(conn, idempotency_key="k", on_conflict="update")
    age(conn, first["id"])
    assert recover(conn) == {first["id"]: "done"}


def test_row_that_cannot_be_recovered_is_passed_over(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    """The platform's audit log refuses one of the dead; the sweep goes on row by row and warns."""
    conn = connect(dsn=fresh_dsn)
    made = [make_job(conn, "running", max_attempts=1) for _ in range(3)]
    conn.execute(
        f"alter table mdm.aa_audit_log add check (action <> 'job_dlq' or object_id <> '{made[1]['id']}')".encode()
    )
    age(conn, *ids(made))
    warnings: list[str] = []
    conn.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    assert recover(conn) == {made[0]["id"]: "dlq", made[2]["id"]: "dlq"}
    assert status(conn, made[1]["id"]) == "running"
    assert [text.split(":")[0] for text in warnings] == [
        "recovery of 3 jobs at once failed",
        f"job {made[1]['id']} cannot be recovered",
    ]


def test_recovery_skips_a_row_that_is_being_finished(conn: Connection, connect: Callable[..., Connection]) -> None:
    held, free = make_job(conn, "running"), make_job(conn, "running")
    age(conn, held["id"], free["id"])
    finishing = connect(autocommit=False)
    call(finishing, "finish_job", job_id=held["id"], lease_no=held["lease_no"])
    assert recover(conn) == {free["id"]: "pending"}
    finishing.rollback()
    assert recover(conn) == {held["id"]: "pending"}


def test_recoveries_stop_counting_at_the_greatest_int(conn: Connection) -> None:
    first = make_job(conn, "running", idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update", available_at="2090-01-01 00:00+00")
    second = make_job(conn, "running")
    conn.execute("update mdm.aa_job set recoveries = 2147483647")
    age(conn, first["id"], second["id"])
    assert recover(conn) == {first["id"]: "done", second["id"]: "pending"}
    assert value(conn, "select min(recoveries) from mdm.aa_job") == 2147483647


def test_d7_age_is_measured_by_the_clock_not_by_the_transaction(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    keeper = connect(autocommit=False)
    keeper.execute("select now()")
    claimed = make_job(conn, "running")
    conn.execute(
        "update mdm.aa_job set claimed_at = %s::timestamptz - interval '30 minutes'",
        (value(keeper, "select now() + (clock_timestamp() - now()) / 2"),),
    )
    assert recover(keeper) == {claimed["id"]: "pending"}


@pytest.mark.parametrize("kind", ["cleanup_jobs", "index_sync", "gin_backfill", "outbox_dispatch"])
def test_b12_every_kind_is_recovered_the_healers_own_too(conn: Connection, kind: Any) -> None:
    claimed = make_job(conn, "running", kind, idempotency_key="singleton")
    age(conn, claimed["id"])
    assert recover(conn) == {claimed["id"]: "pending"}


def test_recover_stale_jobs_dead_job_has_a_reason_after_earlier_recoveries(conn: Connection) -> None:
    """A crash each time leaves no error of its own: the notes alone would say nothing to whoever finds it dead."""
    job_id = enqueue(conn, max_attempts=2)
    for _ in range(2):
        claim_one(conn)
        age(conn, job_id)
        recover(conn)
    assert job(conn, job_id)["status"] == "dlq"
    assert job(conn, job_id)["last_error"] == f"no sign of life from w1 {NOTE} x2"


def test_recovery_in_a_session_with_old_fashioned_strings(conn: Connection, connect: Callable[..., Connection]) -> None:
    """With standard_conforming_strings off a backslash in a pattern would be taken away."""
    session = connect(options="-c standard_conforming_strings=off -c escape_string_warning=off")
    make_kind(conn, "reindex", max_attempts=3)
    job_id = enqueue(conn)
    for outcome in ("pending", "pending", "dlq"):
        claim_one(conn)
        age(conn, job_id)
        assert recover(session) == {job_id: outcome}
    assert job(conn, job_id)["last_error"] == "no sign of life from w1 [stale-claim recovered] x3"
