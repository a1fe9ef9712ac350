"""Every transition, in any order, against a real server and a model; the invariants hold after each step."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.types.json import Jsonb

from jobs import Connection, age, call, ids, make_kind, recover, refused, rows, value, violations
from properties.model import ENDED, Job, Kind, Lease, Model, Request, Window

T = TypeVar("T")
Pick = tuple[bool, int]

TENANTS = ("00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b")
PAST = datetime(2000, 1, 1, tzinfo=UTC)
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
KINDS = {
    "model_full": Kind(
        True, 100, 3, timedelta(seconds=30), timedelta(hours=1), 0.1, frozenset({"done", "dlq", "failed"})
    ),
    "model_quiet": Kind(False, 100, 2, timedelta(minutes=5), timedelta(hours=6), 0.5, frozenset({"done"})),
}
STORED: LiteralString = """
    select id, tenant_id::text, job_kind, priority, available_at, (payload ->> 'n')::int as n, max_attempts,
      idempotency_key as key, key_no, status::text, attempts, lease_no, claimed_together, run_alone, releases,
      recoveries
    from mdm.aa_job
"""
AUDITED: LiteralString = """
    select object_id::bigint, action::text, count(*)::int from mdm.aa_audit_log where object_type = 'job' group by 1, 2
"""

ENDS = ("finish", "fail", "fail", "die", "release", "check", "recover")

kinds = st.sampled_from(sorted(KINDS))
limits = st.sampled_from([1, 2, 3, 10000])
workers = st.sampled_from(["w", "host/1/a", "host/1/b", "host/2/a"])
# One of the leases (jobs) that there ever were: mostly one that is alive, sometimes one that must change nothing.
picks = st.tuples(st.sampled_from([True, True, True, False]), st.integers(0, 10**6))
requests = st.builds(
    Request,
    job_kind=kinds,
    n=st.integers(0, 99),
    tenant_id=st.sampled_from([None, None, *TENANTS]),
    key=st.sampled_from([None, "k"]),
    update=st.booleans(),
    priority=st.sampled_from([None, None, None, 1, -(2**31), 2**31 - 1]),
    available_at=st.sampled_from([None, FUTURE]) | st.integers(1, 10**6).map(lambda n: PAST + timedelta(seconds=n)),
    max_attempts=st.sampled_from([None, None, None, 1, 2**31 - 1]),
)
retry_afters = st.none() | st.sampled_from([timedelta(hours=n) for n in (0, -1, 2, 10**6)])
floors = st.dictionaries(kinds, st.dictionaries(st.sampled_from([1, 100, 2**31 - 1]), st.sampled_from([PAST, FUTURE])))


def element(request: Request) -> dict[str, Any]:
    """A request as an element of enqueue_jobs."""
    return {
        "job_kind": request.job_kind,
        "payload": {"n": request.n},
        "tenant_id": request.tenant_id,
        "idempotency_key": request.key,
        "on_conflict": "update" if request.update else "ignore",
        "priority": request.priority,
        "available_at": request.available_at and request.available_at.isoformat(),
        "max_attempts": request.max_attempts,
    }


class Life(RuleBasedStateMachine):
    """The rules act on jobs and leases that are alive, and on some that are long gone."""

    def __init__(self, conn: Connection, producer: Connection) -> None:
        super().__init__()
        self.conn = conn
        self.producer = producer
        self.model = Model(KINDS)
        self.leases: list[Lease] = []
        self.job_ids: list[int] = []

    # -- tools

    def now(self) -> datetime:
        found: datetime = value(self.conn, "select clock_timestamp()")
        return found

    def window(self, began: datetime) -> Window:
        return began, self.now()

    def answer(self, code: str | None, detail: str | None, function: str, **parameters: Any) -> list[dict[str, Any]]:
        """Call a function that must be refused with this SQLSTATE and detail, or go through when it is None."""
        if code is None:
            return call(self.conn, function, **parameters)
        with refused(code, detail=detail):
            call(self.conn, function, **parameters)
        return []

    def plural(self, drawn: list[Lease]) -> dict[str, list[int]]:
        return {"job_ids": [job_id for job_id, _ in drawn], "lease_nos": [lease_no for _, lease_no in drawn]}

    def lease(self, pick: Pick) -> Lease:
        alive = [lease for lease in self.leases if self.model.owns(lease)]
        return picked(pick, alive, self.leases, (0, 0))

    def owned(self, drawn: list[Lease]) -> list[Job]:
        return [self.model.jobs[job_id] for job_id in sorted({lease[0] for lease in drawn if self.model.owns(lease)})]

    # -- rules

    @initialize()
    def start(self) -> None:
        self.conn.execute("delete from mdm.aa_job; delete from mdm.aa_audit_log")
        for kind in KINDS:
            call(self.conn, "resume_kind", job_kind=kind)

    @rule(request=requests)
    def enqueue(self, request: Request) -> None:
        began = self.now()
        arguments = {**element(request), "payload": Jsonb({"n": request.n}), "available_at": request.available_at}
        [row] = call(self.conn, "enqueue_job", **arguments)
        job_id = int(row["enqueue_job"])
        self.model.enqueue(request, job_id, self.window(began))
        self.job_ids.append(job_id)

    @rule(batch=st.lists(requests, max_size=5))
    def enqueue_many(self, batch: list[Request]) -> None:
        began = self.now()
        made = call(self.conn, "enqueue_jobs", jobs=Jsonb([element(request) for request in batch]))
        window = self.window(began)
        assert sorted(row["ord"] for row in made) == list(range(1, len(batch) + 1))
        for row in sorted(made, key=lambda row: row["ord"]):
            outcome = self.model.enqueue(batch[row["ord"] - 1], row["job_id"], window)
            assert outcome == row["outcome"]
        self.job_ids += [row["job_id"] for row in made]

    @precondition(lambda self: self.model.due(sorted(KINDS), None, {}, datetime.now(UTC)))
    @rule(limit=limits, worker=workers)
    def claim_what_is_due(self, limit: int, worker: str) -> None:
        self.claim(sorted(KINDS), None, limit, None, worker)

    @precondition(lambda self: self.model.due(sorted(KINDS), None, {}, datetime.now(UTC)))
    @rule(limit=limits, pick=picks, how=st.sampled_from(ENDS))
    def claim_and_end(self, limit: int, pick: Pick, how: str) -> None:
        self.claim(sorted(KINDS), None, limit, None)
        self.end(pick, how, None)

    @rule(
        asked=st.sampled_from([sorted(KINDS), *([kind] for kind in KINDS), []]),
        bound=st.sampled_from([None, None, list(TENANTS), [TENANTS[0]], []]),
        limit=limits,
        floor=st.sampled_from([None, None, None, {}]).flatmap(lambda none: st.none() if none is None else floors),
    )
    def claim_filtered(
        self,
        asked: list[str],
        bound: list[str] | None,
        limit: int,
        floor: dict[str, dict[int, datetime]] | None,
    ) -> None:
        self.claim(asked, bound, limit, floor)

    def claim(
        self,
        asked: list[str],
        bound: list[str] | None,
        limit: int,
        floor: dict[str, dict[int, datetime]] | None,
        worker: str = "w",
    ) -> None:
        due = self.model.due(asked, bound, floor or {}, self.now())
        expected = self.model.batch(due, limit)
        arguments = {"worker_id": worker, "kinds": asked, "tenant_ids": bound, "limit": limit}
        claimed = call(self.conn, "claim_job", **arguments, floor=floor and json_floor(floor))

        retired = self.adopt_retired(due)
        if any(map(self.model.superseded, due)):  # what is retired may make the batch shorter, not empty
            assert ids(claimed) == ids_of(expected)[: len(claimed)]
            assert bool(claimed) == bool(expected)
        else:
            assert ids(claimed) == ids_of(expected)
        passed = due.index(expected[len(claimed) - 1]) if claimed else len(due)
        assert {job.id for job in due[:passed] if self.model.superseded(job)} <= retired
        for row in claimed:
            self.model.claim(row["id"], row["lease_no"], len(claimed), worker)
        self.leases += [(row["id"], row["lease_no"]) for row in claimed]

    def adopt_retired(self, due: list[Job]) -> set[int]:
        """A claim retires those superseded jobs that it locks; how far it looks is its own affair."""
        candidates = [job for job in due if self.model.superseded(job)]
        done = set(ids(rows(self.conn, "select id from mdm.aa_job where status = 'done'")))
        retired = [job for job in candidates if job.id in done]
        for job in retired:
            self.model.retire(job)
        return set(ids_of(retired))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, how=st.sampled_from(ENDS), retry_after=retry_afters)
    def end(self, pick: Pick, how: str, retry_after: timedelta | None) -> None:
        """End a claim, or show its lease, in one of the ways there are."""
        lease = self.lease(pick)
        if how == "recover":
            self.recover_leases([lease])
        elif how in ("fail", "die"):
            self.fail(lease, how == "fail", retry_after)
        elif how == "release":
            self.release(lease, retry_after)
        else:
            self.finish(lease, f"{how}_{'job' if how == 'finish' else 'lease'}")

    def finish(self, lease: Lease, function: str) -> None:
        owned = self.model.owns(lease)
        detail = None if owned else self.model.lost(lease)
        self.answer(None if owned else "MJ001", detail, function, job_id=lease[0], lease_no=lease[1])
        if owned and function == "finish_job":
            self.model.finish(self.model.jobs[lease[0]])

    def fail(self, lease: Lease, retryable: bool, retry_after: timedelta | None) -> None:
        owned, began = self.model.owns(lease), self.now()
        detail = None if owned else self.model.lost(lease)
        given = {"error": "e", "retryable": retryable, "retry_after": retry_after}
        code = None if owned else "MJ001"
        made = self.answer(code, detail, "fail_job", job_id=lease[0], lease_no=lease[1], **given)
        if owned:
            job = self.model.jobs[lease[0]]
            self.model.fail(job, retryable, retry_after, self.window(began))
            assert made[0]["status"] == job.status

    def release(self, lease: Lease, retry_after: timedelta | None) -> None:
        owned, began = self.model.owns(lease), self.now()
        detail = None if owned else self.model.lost(lease)
        given = {"job_id": lease[0], "lease_no": lease[1], "retry_after": retry_after, "reason": "r"}
        self.answer(None if owned else "MJ001", detail, "release_job", **given)
        if owned:
            self.model.release(self.model.jobs[lease[0]], retry_after, self.window(began))

    @precondition(lambda self: self.leases)
    @rule(drawn=st.lists(picks, max_size=5), function=st.sampled_from(["finish_jobs", "release_jobs"]))
    def end_many(self, drawn: list[Pick], function: str) -> None:
        leases = list(map(self.lease, drawn))
        owned, began = self.owned(leases), self.now()
        accepted = call(self.conn, function, **self.plural(leases))
        assert sorted(row[function] for row in accepted) == ids_of(owned)
        for job in owned:
            if function == "finish_jobs":
                self.model.finish(job)
            else:
                self.model.release(job, None, self.window(began))

    @precondition(lambda self: self.leases)
    @rule(drawn=st.lists(picks, max_size=5))
    def extend(self, drawn: list[Pick]) -> None:
        leases = list(map(self.lease, drawn))
        answered = [(row["job_id"], row["alive"]) for row in call(self.conn, "extend_jobs", **self.plural(leases))]
        assert answered == [(lease[0], self.model.owns(lease)) for lease in leases]

    @precondition(lambda self: self.leases)
    @rule(silent=st.lists(picks, max_size=5))
    def recover(self, silent: list[Pick]) -> None:
        self.recover_leases(list(map(self.lease, silent)))

    def recover_leases(self, leases: list[Lease]) -> None:
        owned = self.owned(leases)
        age(self.conn, *ids_of(owned))
        assert recover(self.conn) == self.model.recover(owned)

    def newest_running(self) -> list[Job]:
        running = [job for job in self.model.jobs.values() if job.status == "running" and job.key is not None]
        return [job for job in running if not self.model.superseded(job)]

    @precondition(lambda self: self.newest_running())
    @rule(pick=picks, how=st.sampled_from(["fail", "release", "recover"]))
    def end_beside_an_uncommitted_newer_generation(self, pick: Pick, how: str) -> None:
        """The running job goes back to pending, for nobody can see yet that it has been superseded."""
        job = picked(pick, self.newest_running(), self.newest_running(), None)
        assert job is not None
        assert job.lease_no is not None
        lease = job.id, job.lease_no
        request = Request(job.job_kind, 1, job.tenant_id, job.key, update=True)
        began = self.now()
        with self.producer.transaction():
            [row] = call(self.producer, "enqueue_jobs", jobs=Jsonb([element(request)]))
            if how == "fail":
                self.fail(lease, True, timedelta(0))
            elif how == "release":
                self.release(lease, None)
            else:
                self.recover_leases([lease])
        self.model.insert(request, row["job_id"], job.key_no + 1, self.window(began))
        if KINDS[job.job_kind].audited:
            self.model.audit[row["job_id"], "job_enqueued"] += 1
        self.job_ids.append(row["job_id"])

    @precondition(lambda self: self.job_ids)
    @rule(pick=picks, act=st.sampled_from(["replay_job", "discard_job", "stop_job"]))
    def administrate(self, pick: Pick, act: str) -> None:
        fitting = [job_id for job_id in self.model.jobs if self.model.refusal(job_id, act) is None]
        job_id = picked(pick, fitting, self.job_ids, 0)
        code, began = self.model.refusal(job_id, act), self.now()
        self.answer(code, None, act, job_id=job_id)
        if code is None:
            self.model.administrate(job_id, act, self.window(began))

    @precondition(lambda self: not self.model.paused)
    @rule(kind=kinds)
    def pause(self, kind: str) -> None:
        call(self.conn, "pause_kind", job_kind=kind)
        self.model.paused.add(kind)

    @precondition(lambda self: self.model.paused)
    @rule()
    def resume(self) -> None:
        for kind in self.model.paused:
            call(self.conn, "resume_kind", job_kind=kind)
        self.model.paused.clear()

    @precondition(lambda self: self.model.jobs)
    @rule()
    def time_passes(self) -> None:
        """Everything that waits for its time becomes due."""
        self.conn.execute(
            "update mdm.aa_job set available_at = '2000-01-01Z'::timestamptz + id * interval '1 microsecond'"
            " where status = 'pending' and available_at > clock_timestamp()"
        )
        now = self.now()
        for job in self.model.jobs.values():
            if job.status == "pending" and job.available_at > now:
                job.available_at = PAST + timedelta(microseconds=job.id)

    @precondition(lambda self: self.model.jobs)
    @rule(drawn=st.lists(picks, max_size=5))
    def purge(self, drawn: list[Pick]) -> None:
        jobs = self.model.jobs
        ended = [job_id for job_id in jobs if jobs[job_id].status in ENDED]
        old = {picked(pick, ended, ended, 0) for pick in drawn if ended}
        self.conn.execute("update mdm.aa_job set completed_at = '2000-01-01' where id = any(%s)", (list(old),))
        [row] = call(self.conn, "purge_jobs")
        assert row["purge_jobs"] == self.model.purge(old)
        self.conn.execute("update mdm.aa_job set completed_at = clock_timestamp() where id = any(%s)", (list(old),))

    # -- after each step

    @invariant()
    def stored_is_as_the_model_says(self) -> None:
        stored = {row["id"]: Job(**row) for row in rows(self.conn, STORED)}
        self.model.settle(stored)
        assert stored == self.model.jobs

    @invariant()
    def audit_is_as_the_model_says(self) -> None:
        found = Counter({(job_id, action): n for job_id, action, n in self.conn.execute(AUDITED).fetchall()})
        assert found == +self.model.audit

    @invariant()
    def no_invariant_is_violated(self) -> None:
        assert violations(self.conn) == {}

    @invariant()
    def attempts_stay_within_what_is_allowed(self) -> None:
        for job in self.model.jobs.values():
            assert job.attempts <= job.max_attempts + job.recoveries, job


def picked(pick: Pick, alive: list[T], all_of_them: list[T], nothing: T) -> T:
    among = (alive if pick[0] else all_of_them) or all_of_them or [nothing]
    return among[pick[1] % len(among)]


def json_floor(floor: dict[str, dict[int, datetime]]) -> dict[str, dict[str, str]]:
    return {kind: {str(priority): at.isoformat() for priority, at in lanes.items()} for kind, lanes in floor.items()}


def ids_of(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


@pytest.mark.slow
def test_life_of_jobs_is_as_the_model_says(conn: Connection, connect: Any) -> None:
    conn.execute("insert into mdm.aa_tenant (id) select unnest(%s::uuid[])", (list(TENANTS),))
    for name, kind in KINDS.items():
        make_kind(
            conn,
            name,
            audit_level="full" if kind.audited else "exceptions",
            priority=kind.priority,
            max_attempts=kind.max_attempts,
            base_delay=f"{kind.base.total_seconds()} seconds",
            max_delay=f"{kind.cap.total_seconds()} seconds",
            jitter=kind.jitter,
            **{f"retention_{state}": "1 hour" if state in kind.purges else None for state in ENDED},
        )
    producer = connect()
    long = os.environ.get("HYPOTHESIS_PROFILE") == "long"
    run_state_machine_as_test(
        lambda: Life(conn, producer),
        settings=settings(
            max_examples=2000 if long else 25,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # to shrink a failure takes minutes
            phases=list(Phase) if long else [Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
