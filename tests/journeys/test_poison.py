"""Poison: whatever a handler does, the next job is not affected, its neighbours are done, and it ends in the DLQ."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic

import pytest

from jobs import Connection, age, enqueue, job, make_kind, recover, status, value, violations
from runnerkit import TERM, Command, eventually, jobrunner

pytestmark = pytest.mark.one_leg("18")

Connect = Callable[..., Connection]
TABLE = "create table public.effect (job_id bigint)"
GONE = r"no sign of life from \S+ \[stale-claim recovered\]( x\d)?"
# harm -> what last_error says
REASONS = {
    "exits": GONE,
    "aborts": GONE,
    "swells": r"MemoryError: ?",
    "creeps": r"MemoryError: ?|RuntimeError: can't start new thread|HandlerTimeout: ran longer than 1 s|" + GONE,
    "recurses": r"RecursionError: maximum recursion depth exceeded.*",
    "leaves": r"SystemExit: handlers may not",
    "interrupts": r"KeyboardInterrupt: ?",
    "swallows": r"the handler left its transaction aborted: it swallowed the error of an SQL statement",
    "meddles": r"ValueError: meddled",
    "closes": r"the connection of the job's transaction is closed or busy: what was written in it is lost",
    "is_ended": r"AdminShutdown: terminating connection due to administrator command",
    "hangs": r"HandlerTimeout: ran longer than 1 s",
}
KILLERS = {"exits", "aborts", "creeps"}
MEMORY_BYTES = 200 << 20


@pytest.fixture
def db(fresh_dsn: str, connect: Connect) -> Connection:
    conn = connect(dsn=fresh_dsn)
    conn.execute(TABLE)
    for kind in ("poison", "quick"):
        make_kind(
            conn,
            kind,
            max_attempts=2,
            base_delay="0.1 seconds",
            max_delay="0.1 seconds",
            stale_ttl="15 seconds",
            handler_timeout="1 second",
        )
    return conn


def arguments(*more: str) -> tuple[str, ...]:
    return ("--kinds", "poison,quick", "--handlers", "poisonhandlers", *more)


def bound(command: Command) -> None:
    """Let the process have so much address space more than it has now."""
    with open(f"/proc/{command.pid}/statm") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.prlimit(command.pid, resource.RLIMIT_AS, (limit, limit))


def run_out(db: Connection, dsn: str, concurrency: int) -> list[str]:
    """Run runners until nothing is left, each in the place of one that died; gives their logs."""
    logs: list[str] = []
    while len(logs) < 8:
        with jobrunner(dsn, *arguments("--drain-all", "--concurrency", str(concurrency))) as command:
            eventually(
                lambda: value(db, "select count(*) from mdm.aa_job_runner") or command.process.poll() is not None
            )
            if command.process.poll() is None:
                bound(command)
            code = command.end(60)
            logs.append(command.log)
        db.execute("delete from mdm.aa_job_runner")
        running = [row for (row,) in db.execute("select id from mdm.aa_job where status = 'running'")]
        age(db, *running)
        recover(db)
        if code == 0 and not running:
            return logs
    raise AssertionError("there is no end")


def spread(db: Connection, kind: str, harms: Iterable[str]) -> tuple[dict[str, int], list[int]]:
    """Enqueue a job of each harm with good ones between; before them so many that claims have become large."""
    good = [enqueue(db, kind) for _ in range(40)]
    bad = {}
    for harm in harms:
        bad[harm] = enqueue(db, kind, {"harm": harm})
        good += [enqueue(db, kind) for _ in range(5)]
    return bad, good


def look(db: Connection, kind: str, bad: Mapping[str, int], good: Sequence[int]) -> None:
    """The bad ones are dead with a reason, the good ones done once."""
    for harm, job_id in bad.items():
        row = job(db, job_id)
        assert (harm, row["status"], row["attempts"]) == (harm, "dlq", 2)
        assert re.fullmatch(REASONS[harm], row["last_error"], re.DOTALL), (harm, row["last_error"])
    assert {status(db, each) for each in good} == {"done"}
    counted = dict(db.execute("select job_id, count(*) from public.effect group by job_id").fetchall())
    assert counted == (dict.fromkeys(good, 1) if kind == "poison" else {})
    assert violations(db) == {}


@pytest.mark.parametrize(
    ("kind", "harms"),
    [
        ("poison", sorted(REASONS.keys() - KILLERS)),
        ("quick", sorted(REASONS.keys() - KILLERS - {"swallows", "closes"})),  # without a connection no harm
    ],
)
def test_poison_that_leaves_the_process_alive(db: Connection, fresh_dsn: str, kind: str, harms: list[str]) -> None:
    bad, good = spread(db, kind, harms)
    [log] = run_out(db, fresh_dsn, concurrency=2)
    assert "Traceback" not in log
    look(db, kind, bad, good)


@pytest.mark.parametrize("harm", sorted(KILLERS))
def test_poison_that_ends_the_process(db: Connection, fresh_dsn: str, harm: str) -> None:
    """Neighbours in the other slots are done. Memory that creeps up may be missing where a thread is to be started."""
    kind = "quick" if harm == "exits" else "poison"
    bad, good = spread(db, kind, [harm])
    logs = run_out(db, fresh_dsn, concurrency=4)
    assert len(logs) > 1 or harm == "creeps"
    look(db, kind, bad, good)


def test_poison_that_blocks_signals_does_not_keep_the_runner_from_ending(db: Connection, fresh_dsn: str) -> None:
    make_kind(db, "poison", handler_timeout=None)
    job_id = enqueue(db, "poison", {"harm": "blocks"})
    with jobrunner(fresh_dsn, *arguments("--concurrency", "2", "--grace", "1")) as command:
        eventually(lambda: "message=deaf" in command.log)  # running in the database is earlier than the handler's start
        asked = monotonic()
        command.signal(TERM)
        assert command.end() == 5
        assert monotonic() - asked < 1 + 15
    assert (status(db, job_id), job(db, job_id)["attempts"]) == ("pending", 0)


def test_poison_more_hanging_jobs_than_slots_end_the_process_and_are_dead_all_the_same(
    db: Connection, fresh_dsn: str
) -> None:
    """Design 4: with more stuck threads than slots the process exits (70); good jobs are done by the next one."""
    hanging = [enqueue(db, "poison", {"harm": "hangs"}) for _ in range(4)]
    good = [enqueue(db, "poison") for _ in range(5)]
    codes = []
    for _ in range(6):
        with jobrunner(fresh_dsn, *arguments("--drain-all", "--concurrency", "2")) as command:
            codes.append(command.end(60))
        running = [row for (row,) in db.execute("select id from mdm.aa_job where status = 'running'")]
        age(db, *running)
        recover(db)
        if codes[-1] == 0:
            break
    assert codes[0] == 70
    assert codes[-1] == 0
    assert {status(db, each) for each in hanging} == {"dlq"}
    assert {status(db, each) for each in good} == {"done"}
    assert violations(db) == {}
