"""The server goes away and comes back: how long until the first claim, and whether every job still ends once."""

from __future__ import annotations

from time import monotonic, sleep

from chaos.verdict import judge
from chaos.world import Connection, World, crash, register, restart
from jobs import enqueue, value
from runnerkit import TERM, eventually

AIM_SECONDS = 2.0
LIMIT_SECONDS = 12.0  # pauses grow up to 5 s (B75); a busy machine takes longer for the rest


def run(world: World, conn: Connection) -> None:
    """Crash the server under load, for a moment and for longer."""
    register(conn, "after_return")
    for outage_seconds in (0.5, 3.0) if world.quick else (0.2, 0.5, 1.0, 3.0, 10.0, 20.0):
        with world.connect() as each:
            _outage(world, each, outage_seconds)
    with world.connect() as last:
        outcomes = judge(world, last, {"after_return": "effect"})
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)


def _outage(world: World, conn: Connection, outage_seconds: float) -> None:
    jobs = [enqueue(conn, "after_return", {"seconds": 0.2}) for _ in range(60)]
    runner = world.runner(["after_return"], "--concurrency", "4")
    running = "select count(*) from mdm.aa_job where job_kind = 'after_return' and status = 'running'"
    eventually(lambda: value(conn, running) >= 4)
    crash(world.server)
    began = monotonic()
    sleep(outage_seconds)
    restart(world.server)
    with world.connect() as back:
        returned = value(back, "select clock_timestamp()")
        first = "select min(claimed_at) from mdm.aa_job where job_kind = 'after_return' and claimed_at > %s"
        at = eventually(lambda: value(back, first, returned), 60)
        seconds = (at - returned).total_seconds()
        away = monotonic() - began
        aim = "" if seconds < AIM_SECONDS else f" (above the aim of {AIM_SECONDS:g} s)"
        print(
            f"  server away for {away - seconds:.1f} s: first claim {seconds:.2f} s after its return{aim}", flush=True
        )
        world.expect(seconds < LIMIT_SECONDS, f"first claim only {seconds:.1f} s after the server's return")
        left = "select count(*) from mdm.aa_job where id = any(%s) and status <> 'done'"
        eventually(lambda: value(back, left, jobs) == 0, 60)
    runner.signal(TERM)
    world.expect(runner.end() == 0, f"the runner: {runner.log[-300:]}")
    runner.close()
