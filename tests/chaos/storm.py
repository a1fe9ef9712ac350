"""Four runners and two producers at work while everything around them breaks, again and again."""

from __future__ import annotations

import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Final

import psycopg

from chaos.kinds import STORM
from chaos.producers import Producer, by_pg8000, by_psycopg
from chaos.proxy import Proxy
from chaos.verdict import judge, judge_keys
from chaos.world import Connection, World, crash, recover_of, register, restart, socket_path
from cluster import ROOT
from jobrunner.errors import ConnectError
from jobs import value
from runnerkit import KILL, TERM, Command

SKEW: Final = str(ROOT / "tests" / "chaos" / "skew")
TIMEOUTS: Final = ("statement timeout", "lock timeout", "idle-in-transaction timeout")
CLIENTS: Final = "select pid from pg_stat_activity where backend_type = 'client backend' and application_name like %s"


class Storm:
    """The runners, and what is done to them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.proxy = Proxy(socket_path(world.server))
        self.dead: list[int] = []
        self.deeds: Counter[str] = Counter()
        # directly, directly, through the proxy, and with a clock that is seven hours ahead
        self.runners: list[Command] = [self._start(number) for number in range(4)]

    def _start(self, number: int) -> Command:
        dsn = self.proxy.dsn() if number == 2 else None
        extra = {"PATHS": SKEW} if number == 3 else {}
        arguments = ("--concurrency", "3", "--grace", "5", "--log-level", "warning")
        return self.world.runner(list(STORM), *arguments, dsn=dsn, **extra)

    def replace(self, number: int) -> None:
        """Open a new runner in the place of a dead one."""
        old = self.runners[number]
        self.dead.append(old.pid)
        self.world.expect("Traceback" not in old.log, f"a runner's log has a traceback: {_traceback(old.log)}")
        old.close()
        self.runners[number] = self._start(number)

    def revive(self) -> None:
        """Replace what ended by itself: a runner that finds no server at its start says so and ends."""
        for number, runner in enumerate(self.runners):
            code = runner.process.poll()
            if code is not None:
                self.world.expect(code == ConnectError.exit_code, f"a runner ended with {code}: {runner.log[-500:]}")
                self.replace(number)

    # -- the deeds

    def kill(self) -> None:
        number = random.randrange(4)
        self.runners[number].signal(KILL)
        self.runners[number].end()
        self.replace(number)

    def terminate(self) -> None:
        number = random.randrange(4)
        self.runners[number].signal(TERM)
        self.runners[number].end()
        self.replace(number)

    def freeze(self) -> None:
        """Freeze a runner, give its jobs to the others, and let it go on."""
        runner = random.choice(self.runners)
        runner.signal(signal.SIGSTOP)
        sleep(0.3)
        with suppress(psycopg.Error), self.world.connect() as conn:
            recover_of(conn, [runner.pid])
        sleep(0.5)
        runner.signal(signal.SIGCONT)

    def end_sessions(self) -> None:
        with self.world.connect() as conn:
            pids = [pid for (pid,) in conn.execute(CLIENTS, ("jobrunner %",))]
            pids += [pid for (pid,) in conn.execute(CLIENTS, ("producer %",))]
            for pid in random.sample(pids, min(len(pids), 4)):
                conn.execute("select pg_terminate_backend(%s)", (pid,))

    def crash_server(self) -> None:
        crash(self.world.server)
        sleep(0.3)
        restart(self.world.server)

    def silence(self) -> None:
        self.proxy.silence()
        sleep(1)
        self.proxy.speak()

    def lock_out(self) -> None:
        """Keep everybody off the jobs while the database allows a tenth of a second for a statement and a lock."""
        with self.world.connect() as conn, conn.transaction():
            conn.execute("set local lock_timeout = '2s'")
            with suppress(psycopg.errors.LockNotAvailable):
                conn.execute("lock table mdm.aa_job in access exclusive mode")
                sleep(0.6)


@contextmanager
def recovery(world: World, storm: Storm) -> Iterator[None]:
    """Recover what the dead left, twice a second, with whatever is stale by itself."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.5):
            with suppress(psycopg.Error), world.connect() as conn:
                recover_of(conn, list(storm.dead))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join(20)


def run(world: World, conn: Connection) -> None:
    """Let it storm, then let the rest be done in peace, and look at every job."""
    register(conn, *STORM)
    conn.execute("alter database mdm set lock_timeout = '100ms'")
    conn.execute("alter database mdm set statement_timeout = '400ms'")
    conn.execute("alter database mdm set idle_in_transaction_session_timeout = '500ms'")
    producers = [by_psycopg(world.server, list(STORM), 0.02), by_pg8000(world.server, list(STORM), 0.02)]
    storm = Storm(world)
    for producer in producers:
        producer.start()
    with recovery(world, storm):
        fired = _rage(world, storm, 18 if world.quick else 140)
    with world.connect() as conn:
        for name in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            conn.execute(f"alter database mdm reset {name}".encode())
        _settle(world, conn, storm, producers)
        _report(world, conn, storm, producers, fired)


def _rage(world: World, storm: Storm, seconds: float) -> Counter[str]:
    """Do every deed in turn, in an order that is drawn anew each round."""
    deeds: list[Callable[[], None]] = [
        storm.kill,
        storm.terminate,
        storm.freeze,
        storm.end_sessions,
        storm.crash_server,
        storm.silence,
        storm.lock_out,
    ]
    began, fired = monotonic(), Counter[str]()
    while monotonic() - began < seconds or len(storm.deeds) < len(deeds) or not _proven(world, fired):
        if monotonic() - began > 8 * seconds:  # a busy machine is given time; what is missing is reported
            break
        for deed in random.sample(deeds, len(deeds)):
            sleep(random.random() / 2)
            storm.revive()
            if deed == storm.crash_server:
                fired += _timeouts(world)  # a start begins a new log
            with suppress(psycopg.OperationalError):
                deed()
                storm.deeds[deed.__name__] += 1
    return fired + _timeouts(world)


def _proven(world: World, fired: Counter[str]) -> bool:
    """Whether every timeout has fired and something was recovered."""
    if (fired + _timeouts(world)).keys() < set(TIMEOUTS):
        return False
    query = "select count(*) from mdm.aa_job where job_kind = any(%s) and recoveries > 0"
    with suppress(psycopg.OperationalError), world.connect() as conn:
        return bool(value(conn, query, list(STORM)))
    return False


def _timeouts(world: World) -> Counter[str]:
    log = (world.server.base / "log").read_text(errors="replace")
    return Counter({name: len(re.findall(f"due to {name}", log)) for name in TIMEOUTS})


def _settle(world: World, conn: Connection, storm: Storm, producers: list[Producer]) -> None:
    """End producers and runners in good order, recover what is left, and let one runner do it."""
    for producer in producers:
        producer.stop()
    for runner in storm.runners:
        runner.signal(TERM)
    for runner in storm.runners:
        # told to stop before it had started; started while there was no server
        world.expect(
            runner.end() in (0, 5, -TERM, ConnectError.exit_code),
            f"a runner ended with {runner.process.returncode}: {runner.log[-500:]}",
        )
        world.expect("Traceback" not in runner.log, f"a runner's log has a traceback: {_traceback(runner.log)}")
        runner.close()
    storm.proxy.close()
    recover_of(conn, [*storm.dead, *(runner.pid for runner in storm.runners)])
    rest = world.runner(list(STORM), "--drain-all", "--concurrency", "8")
    world.expect(rest.end(180) == 0, f"the runner that does the rest: {rest.log[-500:]}")
    rest.close()


def _report(world: World, conn: Connection, storm: Storm, producers: list[Producer], fired: Counter[str]) -> None:
    committed = set[str]().union(*(each.committed for each in producers))
    rolled_back = set[str]().union(*(each.rolled_back for each in producers))
    print("deeds: " + ", ".join(f"{count} {name}" for name, count in sorted(storm.deeds.items())))
    print("timeouts that fired: " + ", ".join(f"{fired[name]} {name}" for name in TIMEOUTS))
    for name in TIMEOUTS:
        world.expect(fired[name] > 0, f"never fired: {name}")
    each = ", ".join(f"{len(one.committed)} ({one.outages} outages)" for one in producers)
    print(f"acknowledged jobs by producer (psycopg, pg8000): {each}")
    for one in producers:
        world.expect(len(one.committed) > 20, "a producer got hardly anything through")
    judge_keys(world, conn, committed, rolled_back)
    outcomes = judge(world, conn, STORM)
    print("jobs: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    [(recovered, lost)] = conn.execute(
        "select sum(recoveries), sum(releases) from mdm.aa_job where job_kind = any(%s)", (list(STORM),)
    )
    print(f"recoveries {recovered}, releases {lost}", flush=True)
    world.expect(recovered > 0, "nothing was ever recovered")


def _traceback(log: str) -> str:
    """What a log says from its first traceback on."""
    return log[max(0, log.find("Traceback") - 200) :][:3000]
