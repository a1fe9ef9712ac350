"""The half-open connection: nothing is forwarded and nothing is closed (B51)."""

from __future__ import annotations

from time import monotonic

from chaos.proxy import Proxy
from chaos.verdict import judge
from chaos.world import Connection, World, recover_of, register, socket_path
from jobs import enqueue, value
from runnerkit import TERM, Command, eventually

GRACE_SECONDS = 1.0
WATCHDOG_SECONDS = 60.0  # jobrunner.pool.CALL_SECONDS


def run(world: World, conn: Connection) -> None:
    """Go silent under a runner: SIGTERM must end it; left alone it must come back by itself."""
    register(conn, "silent")
    _ends(world, conn)
    if not world.quick:
        _comes_back(world, conn)
    outcomes = judge(world, conn, {"silent": "effect"})
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)


def _working(world: World, conn: Connection, proxy: Proxy) -> Command:
    """A runner at work through the proxy."""
    jobs = [enqueue(conn, "silent", {"seconds": 0.1}) for _ in range(80)]
    runner = world.runner(["silent"], "--concurrency", "2", "--grace", str(GRACE_SECONDS), dsn=proxy.dsn())
    eventually(lambda: value(conn, "select count(*) from mdm.aa_job where id = any(%s) and status = 'done'", jobs) > 5)
    return runner


def _ends(world: World, conn: Connection) -> None:
    proxy = Proxy(socket_path(world.server))
    runner = _working(world, conn, proxy)
    proxy.silence()
    asked = monotonic()
    runner.signal(TERM)
    code = runner.end()
    took = monotonic() - asked
    world.expect(took < GRACE_SECONDS + 15, f"SIGTERM on silent connections took {took:.1f} s")
    print(f"  SIGTERM on silent connections: ended after {took:.1f} s with {code}")
    runner.close()
    proxy.close()
    recover_of(conn, [runner.pid])
    rest = world.runner(["silent"], "--drain-all")
    world.expect(rest.end() == 0, f"the rest: {rest.log[-300:]}")
    rest.close()


def _comes_back(world: World, conn: Connection) -> None:
    proxy = Proxy(socket_path(world.server))
    runner = _working(world, conn, proxy)
    proxy.silence()
    began = monotonic()
    # the lease is lost meanwhile: whatever the runner has in its hands is somebody else's from then on
    done = "select count(*) from mdm.aa_job where job_kind = 'silent' and status = 'done'"
    before = value(conn, done)
    eventually(lambda: value(conn, done) > before + 4, WATCHDOG_SECONDS + 30, 0.2)
    print(f"  silent connections: at work again after {monotonic() - began:.0f} s")
    eventually(lambda: recover_of(conn, []) >= 0 and value(conn, LEFT) == 0, 60, 0.5)
    runner.signal(TERM)
    world.expect(runner.end() == 0, f"the runner: {runner.log[-300:]}")
    runner.close()
    proxy.close()


LEFT = "select count(*) from mdm.aa_job where job_kind = 'silent' and status <> 'done'"
