"""The end of a pool whose database is away: what could not be ended is named (S8, B74)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jobrunner import devserver, ending, schema
from jobrunner.devserver import Server
from jobrunner.errors import UnfinishedError
from jobrunner.job import ClaimedRow, Context, Job
from jobrunner.pool import Pool
from jobrunner.shared import Kinds
from jobrunner.tray import Tray
from jobs import Connection, enqueue, make_kind
from runnerkit import eventually, said, serving

pytestmark = pytest.mark.one_leg("15")


def test_pool_names_the_jobs_that_slots_and_keeper_could_not_end(
    own_server: Server,
    connect: Callable[..., Connection],
    lines: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One job whose commit fails, one that is only to be finished, one whose time is up, one that still runs."""
    schema.migrate(own_server.dsn())
    conn = connect(dsn=own_server.dsn())
    jobs = [enqueue(conn, make_kind(conn, kind)) for kind in ("writes", "returns", "runs", "hangs")]
    inside, gone, out = threading.Semaphore(0), threading.Event(), threading.Event()
    limited = {"hangs": 0.1}
    monkeypatch.setattr(Kinds, "timeout_seconds", lambda kinds, kind: limited.get(kind) if gone.is_set() else None)

    def handler(job: Job, ctx: Context) -> None:
        if job.job_kind == "writes":
            ctx.connection().execute("create table public.written ()")
        inside.release()
        (gone if job.job_kind in ("writes", "returns") else out).wait(60)

    handlers = dict.fromkeys(("writes", "returns", "runs", "hangs"), handler)
    with serving(own_server.dsn(), handlers, concurrency=4, grace_seconds=0.3) as served:
        for _ in range(4):
            assert inside.acquire(timeout=30)
        devserver.stop(own_server)
        gone.set()
        eventually(lambda: said(lines, "handler_timeout"))
        served.stop()
        out.set()
    assert isinstance(served.error, UnfinishedError)
    [left] = said(lines, "jobs_left_to_recovery")
    assert left == {"count": 4, "job_ids": ",".join(map(str, jobs))}
    assert said(lines, "jobs_done") == said(lines, "job_done") == []


def test_pool_that_leaves_a_job_behind_says_so_by_its_end_too(
    conn: Connection, dsn: str, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a claim comes back after the pool has looked for the last time whether anybody has a job."""
    job_id = enqueue(conn, make_kind(conn, "runs"))
    inside, out = threading.Event(), threading.Event()

    def handler(job: Job, ctx: Context) -> None:
        inside.set()
        out.wait(60)

    with serving(dsn, {"runs": handler}) as served:
        assert inside.wait(30)
        monkeypatch.setattr(Pool, "_busy", lambda pool: False)
        served.stop()
        out.set()
    assert isinstance(served.error, UnfinishedError)
    assert said(lines, "jobs_left_to_recovery") == [{"count": 1, "job_ids": str(job_id)}]


def test_tell_left_names_the_first_and_counts_all(lines: pytest.LogCaptureFixture) -> None:
    def row(job_id: int) -> ClaimedRow:
        return ClaimedRow._make([job_id, *[None] * (len(ClaimedRow._fields) - 1)])

    tray = Tray(lambda: None)
    ending.tell_left(tray.holds)
    assert said(lines, "jobs_left_to_recovery") == []
    tray.put([row(job_id) for job_id in range(1, 31)], 0.0)
    ending.tell_left(tray.holds)
    [left] = said(lines, "jobs_left_to_recovery")
    assert left == {"count": 30, "job_ids": "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,..."}
