"""kill -9 of a runner in every window of a job's life, each hit on purpose and seen to be hit."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Final

from chaos.kinds import WINDOWS
from chaos.proxy import SYNC, Gate, Proxy
from chaos.verdict import judge
from chaos.world import Connection, World, recover_of, register, socket_path, states
from jobs import enqueue, make_tenant
from runnerkit import KILL, Command, eventually

JOBS: Final = 4


@dataclass(frozen=True, slots=True)
class Window:
    """Where to kill, and what the database must hold right after it: a state that at least one job is in."""

    kind: str
    where: str
    left: str
    place: str = ""  # of a handler that stands there
    at: str = ""  # the statement that the proxy stops at
    after: str = ""
    answer: bool = False
    skip: int = 0
    stops: bool = False  # SIGTERM brings the runner there
    throttled: bool = False
    long: bool = False  # takes longer than the short form may


def cut(kind: str, where: str, left: str, after: str, at: str = "commit", **more: Any) -> Window:
    """A window before the statement `at`."""
    return Window(kind, where, left, at=at, after=after, **more)


def deaf(kind: str, where: str, left: str, after: str, at: str = "commit", **more: Any) -> Window:
    """A window after the statement `at`, whose answer is lost."""
    return Window(kind, where, left, at=at, after=after, answer=True, **more)


CLAIM, FINISH, BATCH = "mdm.claim_job(", "mdm.finish_job(", "mdm.finish_jobs("
FAIL, RELEASE, EXTEND = "mdm.fail_job(", "mdm.release_jobs(", "mdm.extend_jobs("
STOP: Final = {"at": SYNC, "place": "before", "stops": True}
ALL: Final = (
    cut("w_claim_uncommitted", "between claim and its commit", "pending", CLAIM),
    deaf("w_claim_unanswered", "claim committed, answer lost", "running", CLAIM),
    Window("w_handler_begun", "in the handler, nothing written", "running", place="before"),
    Window("w_handler_written", "in the handler, effect written", "running", place="after"),
    cut("w_handler_returned", "after the handler, before finish", "running", "", FINISH),
    cut("w_finish_uncommitted", "between finish and commit", "running", FINISH),
    deaf("w_finish_unanswered", "finish committed, answer lost", "done", FINISH),
    cut("w_batch_uncommitted", "between finish_jobs and the next claim, one commit", "running", BATCH, CLAIM),
    deaf("w_batch_unanswered", "finish_jobs and claim committed, answer lost", "done", BATCH, CLAIM),
    cut("w_chunk_uncommitted", "in a chunk, before its commit", "running", "public.effect"),
    Window("w_chunk_committed", "between two chunks", "running", place="chunk0"),
    cut("w_last_chunk_uncommitted", "last chunk, between finish and commit", "running", FINISH),
    deaf("w_last_chunk_unanswered", "last chunk committed, answer lost", "done", FINISH),
    cut("w_fail_uncommitted", "between fail and commit", "running", FAIL, SYNC),
    deaf("w_fail_unanswered", "fail committed, answer lost", "pending", FAIL, SYNC),
    cut("w_release_uncommitted", "while releasing at the stop", "running", RELEASE, **STOP),
    deaf("w_release_unanswered", "released at the stop, answer lost", "pending", RELEASE, **STOP),
    cut("w_throttle_uncommitted", "while releasing for the rate limit", "running", RELEASE, SYNC, throttled=True),
    cut(
        "w_heartbeat_uncommitted",
        "in a heartbeat, before its commit",
        "running",
        EXTEND,
        SYNC,
        place="before",
        long=True,
    ),
)


def run(world: World, conn: Connection) -> None:
    """Kill in every window, let another runner do the rest, and look at every job."""
    rounds = 1 if world.quick else 3
    windows = [window for window in ALL if not (world.quick and window.long)]
    register(conn, *WINDOWS)
    proxy = Proxy(socket_path(world.server))
    kills = dict.fromkeys(windows, 0)
    for number in range(rounds):
        for window in windows:
            kills[window] += _kill(world, conn, proxy, window, number)
    proxy.close()
    kinds = {window.kind: WINDOWS[window.kind] for window in windows}
    conn.execute("update mdm.aa_tenant set metadata = '{}'")
    conn.execute("update mdm.aa_job set available_at = clock_timestamp() where status = 'pending'")
    rest = world.runner(list(kinds), "--drain-all")
    world.expect(rest.end(120) == 0, f"the runner that does the rest: {rest.log[-300:]}")
    rest.close()
    print("\nkills per window")
    for window, count in kills.items():
        print(f"  {count:>3}  {window.where}")
        world.expect(
            count == rounds,
            f"window hit {count} of {rounds} times: {window.where}",
        )
    outcomes = judge(world, conn, kinds)
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)


def _kill(world: World, conn: Connection, proxy: Proxy, window: Window, number: int) -> bool:
    """Bring a runner into the window and kill it there; whether that succeeded."""
    gate = Gate(window.at, window.after, window.answer, window.skip + (number if _repeats(window) else 0))
    hold = world.marks / f"hold-{window.kind}-{window.place}"
    if window.place:
        hold.touch()
    tenant = (
        make_tenant(conn, metadata={"rate_limit": {window.kind: {"rps": 0.0001, "burst": 1}}})
        if window.throttled
        else None
    )
    for _ in range(JOBS):
        enqueue(conn, window.kind, tenant_id=tenant)
    proxy.arm(gate if window.at else None)
    runner = world.runner([window.kind], "--concurrency", "1", "--grace", "0", dsn=proxy.dsn())
    try:
        _bring(world, window, gate, runner)
        runner.signal(KILL)
        runner.end()
        eventually(lambda: window.left in states(conn, window.kind))
        _no_backend(conn)
    except AssertionError as error:
        print(f"  {window.where}: {error}: {runner.log[-500:]}", flush=True)
        return False
    finally:
        proxy.arm(None)
        hold.unlink(missing_ok=True)
        for mark in world.marks.glob("at-*"):
            mark.unlink()
        runner.close()
        recover_of(conn, [runner.pid])
    return True


def _bring(world: World, window: Window, gate: Gate, runner: Command) -> None:
    """Wait until the runner stands in the window."""
    if window.place:
        eventually((world.marks / f"at-{window.kind}-{window.place}").exists)
    if window.stops:
        runner.signal(signal.SIGTERM)
    if window.at:
        eventually(gate.reached.is_set, every=0.005)
    assert runner.process.poll() is None, f"the runner had ended with {runner.process.returncode}"


def _repeats(window: Window) -> bool:
    """Whether the runner comes by here again, so that a later round can hit it at a later job."""
    return "finish_job" in window.after or window.at == "mdm.finish_job("


def _no_backend(conn: Connection) -> None:
    """Wait until the server has noticed the death: what was open is rolled back."""
    query = "select count(*) from pg_stat_activity where application_name like 'jobrunner %'"
    eventually(lambda: conn.execute(query).fetchone() == (0,))
