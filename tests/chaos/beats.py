"""Heartbeats under load: handlers that take three times the stale_ttl, and keep every slot and the interpreter busy."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Final

from chaos.verdict import judge
from chaos.world import Connection, World, register
from jobs import call, enqueue, rows, value
from runnerkit import TERM

SLOTS: Final = 4
TTL_SECONDS: Final = 15  # the shortest that there is


def run(world: World, conn: Connection) -> None:
    """Let them run beside an idle runner and a recovery every half second: each job is claimed once."""
    if world.quick:
        print("SKIPPED: takes a minute (the suite has it with a shorter stale_ttl)")
        return
    register(conn, "busy", stale_ttl=f"{TTL_SECONDS} seconds")
    for _ in range(SLOTS):
        enqueue(conn, "busy", {"seconds": 3 * TTL_SECONDS + 1})
    working = world.runner(["busy"], "--concurrency", str(SLOTS))
    began = monotonic()
    while value(conn, "select count(*) from mdm.aa_job where job_kind = 'busy' and status = 'running'") < SLOTS:
        sleep(0.01)
    idle = world.runner(["busy"], "--concurrency", str(SLOTS))
    recovered = 0
    silent = 0.0
    age = (
        "select max(extract(epoch from clock_timestamp() - coalesce(heartbeat_at, claimed_at)))::float8 from mdm.aa_job"
    )
    while monotonic() - began < 10 * TTL_SECONDS and rows(conn, "select from mdm.aa_job where status = 'running'"):
        silent = max(silent, value(conn, age + " where status = 'running'") or 0)
        recovered += len(call(conn, "recover_stale_jobs"))
        sleep(0.5)
    took = monotonic() - began
    for runner in (working, idle):
        runner.signal(TERM)
        world.expect(runner.end(30) == 0, f"a runner: {runner.log[-300:]}")
        world.expect(not runner.events("lease_lost"), "a lease was lost under load")
        runner.close()
    runs = rows(conn, "select attempts, recoveries from mdm.aa_job where job_kind = 'busy'")
    world.expect(recovered == 0, f"{recovered} jobs were taken from a runner that lives")
    world.expect(runs == [{"attempts": 1, "recoveries": 0}] * SLOTS, f"run more than once: {runs}")
    outcomes = judge(world, conn, {"busy": "busy"})
    print(f"  {SLOTS} busy slots for {took:.0f} s, stale_ttl {TTL_SECONDS} s: silent for {silent:.1f} s at most")
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)
