"""A real runner on real airports, killed in the middle, beside a writer that never rests (S2.3, S8, D24)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import LiteralString

import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from entities import stale
from jobrunner.demo import load
from jobrunner.demo.data import entities
from jobs import Connection, actions, age, recover, rows, statuses, value, violations

pytestmark = pytest.mark.slow
Connect = Callable[..., Connection]
JOBRUNNER = Path(sys.executable).with_name("jobrunner")


def runner(dsn: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "JOBRUNNER_DSN": make_conninfo(dsn, user=load.WORKER_ROLE)}
    return subprocess.Popen([JOBRUNNER, "--kinds", "reindex", "--concurrency", "2", *arguments], env=environment)


@contextmanager
def restless_writer(session: Connection) -> Iterator[list[str]]:
    """Rename random entities, insert and delete some, until the block ends; gives the names written."""
    dice, over, written = random.Random(7), Event(), list[str]()
    ids = [row[0] for row in session.execute("select id from mdm.ddm_entity").fetchall()]

    def write() -> None:
        while not over.is_set():
            name = f"renamed{len(written)}"
            session.execute(
                "update mdm.ddm_entity set attributes = attributes || %s where id = %s",
                (Jsonb({"name": name}), dice.choice(ids)),
            )
            session.execute("delete from mdm.ddm_entity where id = %s", (ids.pop(dice.randrange(len(ids))),))
            written.append(name)

    thread = Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join(60)
        assert not thread.is_alive()


def test_reindex_survives_a_kill_beside_a_writer(dsn: str, conn: Connection, connect: Connect) -> None:
    load.register(conn)
    load.ensure_login(conn, load.WORKER_ROLE, "mdm_worker")
    load.load(conn, (entity for entity in entities() if entity.type_key == "airport"))
    load.mark_searchable(conn)
    job_ids = load.enqueue(conn)
    with restless_writer(connect()) as written:
        first = runner(dsn)
        deadline = monotonic() + 120
        while not rows(conn, HALF_DONE):
            assert first.poll() is None
            assert monotonic() < deadline, "no job came half way"
        first.kill()
        first.wait(60)
        cut = running_jobs(conn)
        assert cut
        before = dict(conn.execute("select job_id, rows_rebuilt from mdm.aa_reindex_progress").fetchall())
        free(conn)
        second = runner(dsn, "--drain-all")
        assert second.wait(240) == 0
    assert len(written) > 10
    assert statuses(conn)["done"] == len(job_ids)
    assert stale(conn) == 0
    assert violations(conn) == {}
    after = dict(conn.execute("select job_id, rows_rebuilt from mdm.aa_reindex_progress").fetchall())
    registered = value(conn, "select count(*) from mdm.ddm_entity")
    # what was deleted meanwhile may have been rebuilt before; nothing was rebuilt twice
    assert registered <= sum(after.values()) <= registered + len(written)
    for job_id in cut:
        assert after[job_id] >= before.get(job_id, 0)
        assert actions(conn, job_id) == ["job_enqueued", "job_done"]


HALF_DONE: LiteralString = """
    select
    from mdm.aa_reindex_progress p join mdm.aa_job j on j.id = p.job_id
    where j.status = 'running' and p.chunks > 1
"""


def free(conn: Connection) -> None:
    """Let recovery take the jobs of the dead runner, once the server has noticed that its sessions are gone."""
    deadline = monotonic() + 30
    while running := running_jobs(conn):
        age(conn, *running)
        recover(conn)
        assert monotonic() < deadline, f"not recovered: {running}"


def running_jobs(conn: Connection) -> list[int]:
    return [row["id"] for row in rows(conn, "select id from mdm.aa_job where status = 'running'")]
