"""The handler of reindex: chunks of fitting size, the last one finishes, others' locks are waited out or snoozed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

from entities import add_entities, make_stale, make_type, progress, stale
from jobrunner.db.call import send
from jobrunner.db.worker import check_lease, claim_job, finish_job
from jobrunner.errors import Cancelled, PermanentError, Snooze
from jobrunner.handlers import HANDLERS
from jobrunner.handlers.reindex import CHUNK_SECONDS, FIRST_ROWS, MAX_ROWS, next_rows, reindex
from jobrunner.job import Job
from jobs import Connection, actions, age, enqueue, job, make_tenant, recover, status

Connect = Callable[..., Connection]


class LentChunk:
    """A transaction of the context below."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.finishes = False

    def finish(self) -> None:
        self.finishes = True


class LentContext:
    """A context on a real connection, with the contract of job.Context: chunks that begin with check_lease."""

    def __init__(self, connection: Connection, claimed: Job) -> None:
        self._connection = connection
        self._lease = {"job_id": claimed.id, "lease_no": claimed.lease_no}
        self.chunks = 0
        self.cancelled = False
        self.after_chunk: Callable[[int], None] = lambda chunks: None
        self.logger = logging.LoggerAdapter(logging.getLogger("test"))

    def connection(self) -> Connection:
        raise AssertionError("reindex commits in chunks")

    @contextmanager
    def chunk(self) -> Iterator[LentChunk]:
        with self._connection.transaction():
            send(self._connection, check_lease(**self._lease))
            lent = LentChunk(self._connection)
            yield lent
            if lent.finishes:
                send(self._connection, finish_job(**self._lease))
        self.chunks += 1
        self.after_chunk(self.chunks)

    def raise_if_cancelled(self) -> None:
        if self.cancelled:
            raise Cancelled


@pytest.fixture
def worker(connect: Connect) -> Connection:
    """A session with the rights of a runner and no more."""
    return connect(role="mdm_worker")


@pytest.fixture
def tenant(conn: Connection) -> UUID:
    return make_tenant(conn)


@pytest.fixture
def many(conn: Connection, tenant: UUID) -> list[UUID]:
    """More stale entities of type thing than the first chunks take, in the order in which a reindex walks."""
    found = add_entities(conn, tenant, make_type(conn, "thing", ["name"]), ({"name": f"n{n}"} for n in range(2000)))
    make_stale(conn)
    return found


def claimed(conn: Connection) -> Job:
    """Claim the next reindex as the runner does."""
    call_ = claim_job(worker_id="h/1/w", kinds=["reindex"], tenant_ids=None, limit=1, floor=None)
    [row] = call_.read(send(conn, call_).fetchall())
    return Job.from_row(row)


def enqueued(conn: Connection, tenant_id: UUID, payload: Any = None) -> Job:
    enqueue(conn, payload=payload, tenant_id=tenant_id)
    return claimed(conn)


def test_reindex_is_the_handler_of_its_kind() -> None:
    assert HANDLERS["reindex"] is reindex


def test_reindex_rebuilds_in_chunks_and_the_last_one_finishes(
    conn: Connection, worker: Connection, tenant: UUID, many: list[UUID]
) -> None:
    running = enqueued(conn, tenant, {"entity_type": "thing"})
    ctx = LentContext(worker, running)
    states: list[str] = []
    ctx.after_chunk = lambda chunks: states.append(status(conn, running.id))
    reindex(running, ctx)
    assert len(states) > 1
    assert states == ["running"] * (len(states) - 1) + ["done"]
    assert stale(conn) == 0
    assert actions(conn, running.id) == ["job_enqueued", "job_done"]


def test_reindex_raises_permanent_error_for_a_bad_payload(conn: Connection, worker: Connection, tenant: UUID) -> None:
    running = enqueued(conn, tenant, {"entity_type": "nothing"})
    with pytest.raises(PermanentError, match="entity type nothing does not exist"):
        reindex(running, LentContext(worker, running))
    assert status(conn, running.id) == "running"
    assert progress(conn, running.id) is None


def test_reindex_waits_out_a_short_transaction(
    conn: Connection, connect: Connect, worker: Connection, tenant: UUID, many: list[UUID]
) -> None:
    running = enqueued(conn, tenant)
    ctx = LentContext(worker, running)
    holder = connect(autocommit=False)

    def hold_then_let_go(chunks: int) -> None:
        if chunks == 1:
            holder.execute("select from mdm.ddm_entity where id = %s for update", (many[-1],))
        elif (progress(conn, running.id) or {})["rows_rebuilt"] == len(many) - 1:
            holder.rollback()

    ctx.after_chunk = hold_then_let_go
    reindex(running, ctx)
    assert status(conn, running.id) == "done"
    assert stale(conn) == 0


def test_reindex_snoozes_when_somebody_holds_a_row_for_long(
    conn: Connection, connect: Connect, worker: Connection, tenant: UUID, many: list[UUID],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(reindex.__globals__, "PATIENCE_SECONDS", 0.2)
    running = enqueued(conn, tenant)
    ctx = LentContext(worker, running)
    holder = connect(autocommit=False)
    ctx.after_chunk = lambda chunks: (
        (chunks == 1 and holder.execute("select from mdm.ddm_entity where id = %s for update", (many[-1],))) and None
    )
    with pytest.raises(Snooze, match=str(many[-1])) as raised:
        reindex(running, ctx)
    assert raised.value.seconds > 0
    assert stale(conn) == 1
    holder.rollback()
    reindex(running, LentContext(worker, running))
    kept = progress(conn, running.id)
    assert kept is not None
    assert (kept["rows_rebuilt"], stale(conn)) == (len(many), 0)


def test_reindex_stops_between_chunks_when_cancelled(
    conn: Connection, worker: Connection, tenant: UUID, many: list[UUID]
) -> None:
    running = enqueued(conn, tenant)
    ctx = LentContext(worker, running)
    ctx.after_chunk = lambda chunks: setattr(ctx, "cancelled", True)
    with pytest.raises(Cancelled):
        reindex(running, ctx)
    assert stale(conn) == len(many) - FIRST_ROWS


def test_reindex_of_a_lost_lease_ends_and_its_successor_goes_on(
    conn: Connection, worker: Connection, tenant: UUID, many: list[UUID]
) -> None:
    zombie = enqueued(conn, tenant)
    ctx = LentContext(worker, zombie)

    def recover_after_the_first(chunks: int) -> None:
        age(conn, zombie.id)
        recover(conn)

    ctx.after_chunk = recover_after_the_first
    with pytest.raises(psycopg.Error) as raised:
        reindex(zombie, ctx)
    assert raised.value.sqlstate == "MJ001"
    assert stale(conn) == len(many) - FIRST_ROWS
    owner = claimed(worker)
    reindex(owner, LentContext(worker, owner))
    kept = progress(conn, owner.id)
    assert kept is not None
    assert (kept["rows_rebuilt"], stale(conn)) == (len(many), 0)
    assert job(conn, owner.id)["status"] == "done"


def test_reindex_passes_other_errors_on(conn: Connection, worker: Connection, tenant: UUID, many: list[UUID]) -> None:
    running = enqueued(conn, tenant)
    conn.execute("alter table mdm.ddm_entity add constraint never_stale check (search_vector = 'stale')")
    try:
        with pytest.raises(psycopg.errors.CheckViolation):
            reindex(running, LentContext(worker, running))
    finally:
        conn.execute("alter table mdm.ddm_entity drop constraint never_stale")


@pytest.mark.parametrize(
    ("rows", "seconds", "expected"),
    [
        (1000, CHUNK_SECONDS, 1000),
        (1000, CHUNK_SECONDS * 2, 500),
        (1000, CHUNK_SECONDS / 10, 2000),
        (MAX_ROWS, CHUNK_SECONDS / 10, MAX_ROWS),
        (1000, 0.0, 2000),
        (1, 60.0, 1),
        (1, 0.0, 2),
    ],
)
def test_next_rows_aims_at_chunks_of_equal_time(rows: int, seconds: float, expected: int) -> None:
    assert next_rows(rows, seconds) == expected
