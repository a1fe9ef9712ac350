"""Everything at once: claimers, producers, random failures, and recovery that takes jobs from living workers (B69)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from threading import Event
from time import monotonic
from typing import Any, LiteralString

import psycopg
import pytest

from jobs import KIND, Row, call, claim, enqueue, fail, finish, ids, recover, release, rows, statuses, violations
from races.sessions import DEADLINE_SECONDS, Connection, background, result

Session = Callable[..., Connection]
KINDS = (KIND, "index_sync", "virus_scan")
PRODUCERS = 2
CLAIMERS = 4
JOBS = 120

AGE_SOME: LiteralString = """
    update mdm.aa_job
    set claimed_at = claimed_at - interval '100 hours', heartbeat_at = null
    where id in (
      select id from mdm.aa_job where status = 'running' and random() < 0.3 limit 20 for update skip locked)
"""
AUDIT: LiteralString = "select object_id::bigint, action::text, count(*) from mdm.aa_audit_log group by 1, 2"


@dataclass
class Storm:
    """What the threads share: when to stop, and what they saw happen."""

    produced: Event = field(default_factory=Event)
    over: Event = field(default_factory=Event)
    until: float = field(default_factory=lambda: monotonic() + DEADLINE_SECONDS)
    finished: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def goes_on(self) -> bool:
        assert monotonic() < self.until, "the storm does not end"
        return not self.over.is_set()


def produce(conn: Connection, storm: Storm, seed: int) -> None:
    """Enqueue jobs, some under keys that both producers use, some in transactions that are rolled back."""
    random = Random(seed)
    for n in range(JOBS):
        with conn.transaction(force_rollback=random.random() < 0.1):
            key = f"k{random.randrange(30)}" if random.random() < 0.3 else None
            enqueue(
                conn,
                random.choice(KINDS),
                {"n": n},
                tenant_id=TENANT,
                idempotency_key=key,
                on_conflict=random.choice(("ignore", "update")),
                priority=random.choice((None, 1, 2)),
                max_attempts=random.choice((1, 3, 1000)),
            )


def work(conn: Connection, storm: Storm, seed: int) -> None:
    """Claim and end jobs, well or badly; a lease may be lost at any moment."""
    random = Random(seed)
    while storm.goes_on():
        batch = claim(conn, *KINDS, limit=random.choice((1, 3, 10)))
        if random.random() < 0.3:
            end_together(conn, storm, batch)
            continue
        for claimed in batch:
            try:
                end_one(conn, storm, claimed, random.random())
            except psycopg.Error as error:
                if error.sqlstate != "MJ001":
                    raise
                storm.lost.append(claimed["id"])


def end_together(conn: Connection, storm: Storm, batch: list[Row]) -> None:
    """Send a heartbeat, then finish what is still owned."""
    leases = {"job_ids": ids(batch), "lease_nos": [row["lease_no"] for row in batch]}
    call(conn, "extend_jobs", **leases)
    ended = [row["finish_jobs"] for row in call(conn, "finish_jobs", **leases)]
    storm.finished.extend(ended)
    storm.lost.extend(set(ids(batch)) - set(ended))


def end_one(conn: Connection, storm: Storm, claimed: Row, dice: float) -> None:
    if dice < 0.5:
        finish(conn, claimed)
        storm.finished.append(claimed["id"])
    elif dice < 0.8:
        ended = fail(conn, claimed, retry_after=timedelta(0), retryable=dice < 0.75)
        if ended["status"] == "dlq":
            storm.dead.append(claimed["id"])
    elif dice < 0.9:
        release(conn, claimed)
    # else: forgotten, as a crash would


def heal(conn: Connection, storm: Storm) -> None:
    """Take jobs from workers dead and alive; say when everything has ended."""
    while storm.goes_on():
        conn.execute(AGE_SOME)
        storm.dead.extend(id for id, outcome in recover(conn).items() if outcome == "dlq")
        if storm.produced.is_set() and not {"pending", "running"} & set(statuses(conn)):
            storm.over.set()


TENANT = "00000000-0000-0000-0000-00000000000a"


@pytest.mark.slow
def test_b69_storm_ends_with_every_job_ended_once(conn: Connection, session: Session) -> None:
    conn.execute("insert into mdm.aa_tenant (id) values (%s)", (TENANT,))
    storm = Storm()
    claimers = [background(work, session(), storm, seed) for seed in range(CLAIMERS)]
    healer = background(heal, session(), storm)
    for producer in [background(produce, session(), storm, seed) for seed in range(PRODUCERS)]:
        result(producer)
    storm.produced.set()
    for thread in [*claimers, healer]:
        result(thread)

    jobs = rows(conn, "select * from mdm.aa_job")
    audited: dict[str, Counter[int]] = {"job_enqueued": Counter(), "job_done": Counter(), "job_dlq": Counter()}
    for job_id, action, count in conn.execute(AUDIT).fetchall():
        audited[action][job_id] = count
    superseded = [row["id"] for row in jobs if (row["last_error"] or "").startswith("superseded")]
    ended: dict[str, Any] = {state: [row["id"] for row in jobs if row["status"] == state] for state in ("done", "dlq")}

    assert violations(conn) == {}
    assert set(audited["job_enqueued"]) == set(ids(jobs))
    assert Counter(ended["done"]) == audited["job_done"] == Counter(storm.finished + superseded)
    assert Counter(ended["dlq"]) == audited["job_dlq"] == Counter(storm.dead)
    assert len(ended["done"]) + len(ended["dlq"]) == len(jobs)
    assert storm.lost, "recovery took nothing from anybody: the storm tests nothing"
    assert superseded or ended["dlq"]
