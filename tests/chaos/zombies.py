"""Runners that are frozen while others take their jobs, and then go on: nothing of what they still do may count."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from chaos.proxy import Gate, Proxy
from chaos.verdict import judge
from chaos.world import Connection, World, effects, recover_of, register, socket_path, states
from jobs import call, enqueue, value
from runnerkit import TERM, eventually


@dataclass(frozen=True, slots=True)
class Freeze:
    """Where a runner is frozen: a place of its handler."""

    kind: str
    base: str
    where: str
    place: str


ALL: Final = (
    Freeze("z_begun", "effect", "in the handler, nothing written", "before"),
    Freeze("z_written", "effect", "in the handler, effect written", "after"),
    Freeze("z_chunks", "chunks", "between two chunks", "chunk0"),
)


def run(world: World, conn: Connection) -> None:
    """Freeze, recover, let another runner do the job, thaw."""
    register(conn, *(freeze.kind for freeze in ALL))
    for freeze in ALL:
        _freeze(world, conn, freeze)
    _held_row(world, conn)
    outcomes = judge(world, conn, {freeze.kind: freeze.base for freeze in ALL})
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)


def _freeze(world: World, conn: Connection, freeze: Freeze) -> None:
    hold = world.marks / f"hold-{freeze.kind}-{freeze.place}"
    hold.touch()
    enqueue(conn, freeze.kind)
    zombie = world.runner([freeze.kind], "--concurrency", "1")
    eventually((world.marks / f"at-{freeze.kind}-{freeze.place}").exists)
    zombie.signal(signal.SIGSTOP)
    recovered = recover_of(conn, [zombie.pid])
    hold.unlink()
    heir = world.runner([freeze.kind], "--drain-all", "--concurrency", "1")
    world.expect(heir.end() == 0, f"the heir: {heir.log[-300:]}")
    heir.close()
    before = effects(conn, freeze.kind)
    zombie.signal(signal.SIGCONT)
    eventually(lambda: zombie.events("lease_lost"))
    zombie.signal(TERM)
    world.expect(zombie.end() == 0, f"the zombie: {zombie.log[-300:]}")
    zombie.close()
    world.expect(recovered == 1, f"{recovered} jobs recovered from a frozen runner: {freeze.where}")
    world.expect(effects(conn, freeze.kind) == before, f"a zombie wrote after it had lost its lease: {freeze.where}")
    print(f"  frozen and thawed {freeze.where}: lease lost, nothing written")


def _held_row(world: World, conn: Connection) -> None:
    """Cut a runner off between finish and commit: recovery skips the row, and v_job_stale names who holds it."""
    kind = "z_written"
    hold = world.marks / f"hold-{kind}-after"
    hold.touch()
    (world.marks / f"at-{kind}-after").unlink()
    enqueue(conn, kind)
    proxy = Proxy(socket_path(world.server))
    gate = Gate("commit", "mdm.finish_job(")
    proxy.arm(gate)
    runner = world.runner([kind], "--concurrency", "1", dsn=proxy.dsn())
    eventually((world.marks / f"at-{kind}-after").exists)
    conn.execute("update mdm.aa_job set claimed_at = claimed_at - interval '1 hour' where status = 'running'")
    hold.unlink()
    eventually(gate.reached.is_set)
    runner.signal(signal.SIGSTOP)
    recovered = len(call(conn, "recover_stale_jobs"))
    world.expect(recovered == 0, "recovery took a row from under a finish")
    pid = eventually(lambda: value(conn, "select max(held_by_pid) from mdm.v_job_stale"))
    conn.execute("select pg_terminate_backend(%s)", (pid,))
    eventually(lambda: len(call(conn, "recover_stale_jobs")) == 1)
    runner.signal(signal.SIGKILL)
    runner.close()
    proxy.close()
    heir = world.runner([kind], "--drain-all")
    world.expect(heir.end() == 0, f"the heir: {heir.log[-300:]}")
    heir.close()
    world.expect(states(conn, kind) == {"done": 2}, f"held row: {states(conn, kind)}")
    print("  cut off between finish and commit: recovery skips the row, v_job_stale names its session")
