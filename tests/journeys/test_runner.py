"""Journeys of a real `jobrunner` process: it drains, is killed, is told to stop, loses its server, and meets poison."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from jobrunner import devserver, schema
from jobrunner.devserver import Server
from jobs import (
    Connection,
    actions,
    age,
    audit,
    enqueue,
    job,
    make_due,
    make_kind,
    recover,
    status,
    statuses,
    value,
    violations,
)
from runnerkit import INT, KILL, TERM, cpu_seconds, eventually, jobrunner, options, rss_mib, run
from testhandlers import TABLE

pytestmark = pytest.mark.one_leg("18")

Connect = Callable[..., Connection]


@pytest.fixture
def db(fresh_dsn: str, connect: Connect) -> Connection:
    """A database of the test's own, with the kinds of the test handlers and the table of their effects."""
    return prepared(connect(dsn=fresh_dsn))


def prepared(conn: Connection) -> Connection:
    conn.execute("alter system set synchronous_commit = on")  # what was answered survives a crash, as in production
    conn.execute("select pg_reload_conf()")
    conn.execute(TABLE)
    for kind in ("noop", "effect", "busy", "loud", "killer", "raises"):
        make_kind(conn, kind, max_attempts=3, stale_ttl="15 minutes", base_delay="1 second", max_delay="2 seconds")
    return conn


def effects(conn: Connection, label: str = "") -> dict[int, int]:
    """How often each job had its effect."""
    query = "select job_id, count(*) from public.effect where label = %s group by job_id"
    return dict(conn.execute(query, (label,)).fetchall())


def started(conn: Connection, count: int) -> None:
    """Wait until so many handlers of kind loud have begun."""
    eventually(lambda: value(conn, "select count(*) from public.effect where label = 'start'") >= count)


def ready(conn: Connection) -> None:
    """Wait until the runner is up."""
    eventually(lambda: value(conn, "select count(*) from mdm.aa_job_runner") == 1)


def test_journey_drain_does_every_job_once(db: Connection, fresh_dsn: str) -> None:
    jobs = [enqueue(db, "effect") for _ in range(150)] + [enqueue(db, "noop") for _ in range(50)]
    code, out, err = run(fresh_dsn, *options(["effect", "noop"], "--drain"))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("done 200, failed 0, released 0, dead 0 in ")
    assert statuses(db) == {"done": 200}
    assert effects(db) == dict.fromkeys(jobs[:150], 1)
    assert violations(db) == {}
    assert value(db, "select count(*) from mdm.aa_audit_log where action = 'job_done'") == 200


def test_journey_drain_all_waits_for_retries_and_drain_does_not(db: Connection, fresh_dsn: str) -> None:
    job_id = enqueue(db, "raises", {"error": "error"})
    run(fresh_dsn, *options(["raises"], "--drain"))
    assert (status(db, job_id), job(db, job_id)["attempts"]) == ("pending", 1)
    code, out, _ = run(fresh_dsn, *options(["raises"], "--drain-all"))
    assert code == 0
    assert re.match(r"done 0, failed 1, released 0, dead 1 in [1-9]", out.splitlines()[-1])
    assert (status(db, job_id), job(db, job_id)["attempts"]) == ("dlq", 3)


def test_journey_kill_9_in_a_handler_then_recovery_then_done_once(db: Connection, fresh_dsn: str) -> None:
    job_id = enqueue(db, "loud", {"seconds": 60})
    with jobrunner(fresh_dsn, *options(["loud"])) as command:
        started(db, 1)
        command.signal(KILL)
        assert command.end() == -KILL
    assert status(db, job_id) == "running"
    db.execute("update mdm.aa_job set payload = '{}'")
    assert run(fresh_dsn, *options(["loud"], "--drain"))[0] == 0
    assert status(db, job_id) == "running", "its runner may live: the TTL is not over"
    age(db, job_id)
    assert run(fresh_dsn, *options(["loud"], "--drain"))[0] == 0
    row = job(db, job_id)
    assert (row["status"], row["recoveries"], row["attempts"]) == ("done", 1, 2)
    assert actions(db, job_id) == ["job_enqueued", "job_done"]
    assert violations(db) == {}


def test_journey_handlers_of_three_ttls_run_once_though_they_keep_the_interpreter_busy(
    db: Connection, fresh_dsn: str
) -> None:
    """All slots compute for 9 s, three times a stale_ttl that is shorter than allowed (`bin/chaos beats`: 15 s)."""
    db.execute("alter table mdm.aa_job_kind drop constraint aa_job_kind_stale_ttl_check")
    db.execute("update mdm.aa_job_kind set stale_ttl = '3 seconds' where job_kind = 'busy'")
    jobs = [enqueue(db, "busy", {"seconds": 9}) for _ in range(3)]
    with jobrunner(fresh_dsn, *options(["busy"], "--concurrency", "3")) as command:
        eventually(lambda: statuses(db) == {"running": 3})
        with jobrunner(fresh_dsn, *options(["busy"])) as idle:
            eventually(lambda: recover(db) or statuses(db) == {"done": 3}, seconds=60, every=0.1)
            assert statuses(db) == {"done": 3}, "a job was taken from a runner that lives"
            idle.signal(TERM)
            assert idle.end() == 0
        command.signal(TERM)
        assert command.end() == 0
        assert command.events("lease_lost") == []
    assert effects(db, "busy") == dict.fromkeys(jobs, 1)
    rows = [job(db, each) for each in jobs]
    assert [(row["attempts"], row["recoveries"]) for row in rows] == [(1, 0)] * 3


def test_b14_journey_job_that_kills_its_worker_is_dead_after_its_attempts(db: Connection, fresh_dsn: str) -> None:
    job_id = enqueue(db, "killer", {"kill": True})
    for _ in range(4):
        run(fresh_dsn, *options(["killer"], "--drain"))
        age(db, job_id)
        recover(db)
        if status(db, job_id) == "dlq":
            break
        make_due(db, job_id)
    row = job(db, job_id)
    assert (row["status"], row["attempts"]) == ("dlq", 3)
    assert actions(db, job_id) == ["job_enqueued", "job_dlq"]
    assert run(fresh_dsn, *options(["killer"], "--drain"))[1].startswith("done 0")


def test_b14_journey_killer_in_a_batch_of_50_takes_nobody_along(db: Connection, fresh_dsn: str) -> None:
    """D3: the killer alone is dead, its 49 neighbours are done, whatever was claimed together with it."""
    warm = [enqueue(db, "killer") for _ in range(200)]
    jobs = [enqueue(db, "killer", {"kill": number == 25}) for number in range(50)]
    together = 0
    for _ in range(6):
        run(fresh_dsn, *options(["killer"], "--drain", "--concurrency", "1"))
        running = [row for (row,) in db.execute("select id from mdm.aa_job where status = 'running'")]
        together = max(together, len(running))
        if not running:
            break
        age(db, *running)
    assert together > 10, "the killer was never claimed with others: the test proves nothing"
    assert status(db, jobs[25]) == "dlq"
    assert {status(db, job_id) for job_id in [*warm, *jobs[:25], *jobs[26:]]} == {"done"}
    assert job(db, jobs[25])["attempts"] == 3
    assert len([row for row in audit(db, jobs[25]) if row["action"] == "job_dlq"]) == 1
    assert violations(db) == {}


@pytest.mark.parametrize("number", [TERM, INT])
def test_b74_journey_signal_lets_running_jobs_end_within_the_grace(
    db: Connection, fresh_dsn: str, number: signal.Signals
) -> None:
    jobs = [enqueue(db, "loud", {"held": True}) for _ in range(6)]
    with jobrunner(fresh_dsn, *options(["loud"], "--grace", "60")) as command:
        started(db, 4)
        command.signal(number)
        eventually(lambda: command.events("runner_stopping"))
        db.execute("insert into public.effect (label) values ('go')")
        assert command.end() == 0
        assert [len(command.events(name)) for name in ("runner_stopping", "runner_stopped")] == [1, 1]
    assert sorted(status(db, job_id) for job_id in jobs) == ["done"] * 4 + ["pending"] * 2
    assert value(db, "select count(*) from mdm.aa_job_runner") == 0


@pytest.mark.parametrize(("signals", "grace"), [(1, "1"), (2, "60")])
def test_b74_journey_unfinished_jobs_are_given_back(db: Connection, fresh_dsn: str, signals: int, grace: str) -> None:
    jobs = [enqueue(db, "loud", {"seconds": 60}) for _ in range(4)]
    with jobrunner(fresh_dsn, *options(["loud"], "--grace", grace)) as command:
        started(db, 4)
        asked = monotonic()
        command.signal(TERM)
        if signals == 2:
            eventually(lambda: command.events("runner_stopping"))
            command.signal(TERM)
        assert command.end() == 5
        assert monotonic() - asked < 1 + 6, "grace + 2 s (B74), and time for a busy machine"
        assert "they were given back, or are left to recovery" in command.log.splitlines()[-1]
        assert "Traceback" not in command.log
    assert [(job(db, job_id)["status"], job(db, job_id)["attempts"]) for job_id in jobs] == [("pending", 0)] * 4


def test_journey_poison_of_every_kind_leaves_the_runner_alive(db: Connection, fresh_dsn: str) -> None:
    jobs = {
        error: enqueue(db, "raises", {"error": error}) for error in ("error", "permanent", "later", "snooze", "exit")
    }
    nothing = enqueue(db, "raises")
    with jobrunner(fresh_dsn, *options(["raises", "effect"])) as command:
        eventually(lambda: value(db, "select bool_and(last_error is not null) from mdm.aa_job"))
        good = enqueue(db, "effect")
        eventually(lambda: status(db, good) == "done")
        command.signal(TERM)
        assert command.end() == 0
    texts = {error: job(db, job_id)["last_error"] for error, job_id in jobs.items()}
    assert texts == {
        "error": "ValueError: broken",
        "permanent": "PermanentError: never",
        "later": "RetryLater: later",
        "snooze": "released: not now",
        "exit": "SystemExit: 3",
    }
    assert status(db, jobs["permanent"]) == "dlq"
    assert job(db, nothing)["last_error"] == "KeyError: 'error'"


def test_b39_journey_strict_isolation_of_the_database_disturbs_nothing(db: Connection, fresh_dsn: str) -> None:
    db.execute(f"alter database {db.info.dbname} set default_transaction_isolation = 'serializable'")
    jobs = [enqueue(db, "effect") for _ in range(100)]
    commands = [options(["effect"], "--drain", "--concurrency", "2")] * 2
    with jobrunner(fresh_dsn, *commands[0]) as first, jobrunner(fresh_dsn, *commands[1]) as second:
        assert (first.end(), second.end()) == (0, 0)
        assert (first.log, second.log) == ("", "")
    assert effects(db) == dict.fromkeys(jobs, 1)
    assert {row["attempts"] for row in (job(db, job_id) for job_id in jobs)} == {1}


def test_b80_journey_ended_sessions_cost_no_slot_and_no_job(db: Connection, fresh_dsn: str) -> None:
    mine = "from pg_stat_activity where starts_with(application_name, 'jobrunner ') and datname = current_database()"

    def end_sessions() -> bool:
        """End all sessions of the runner; look after a while whether all is done."""
        db.execute(f"select pg_terminate_backend(pid) {mine}")  # type: ignore[arg-type]
        wait(0.2)
        # Claims whose answer was lost with the session are recovered when their time has come (design 4).
        unheard = (
            "select id from mdm.aa_job where status = 'running' and claimed_at < clock_timestamp() - interval '6 s'"
        )
        age(db, *[job_id for (job_id,) in db.execute(unheard)])
        recover(db)
        return statuses(db) == {"done": 150}

    with jobrunner(fresh_dsn, *options(["loud"])) as command:
        ready(db)
        jobs = [enqueue(db, "loud", {"seconds": 0.02}) for _ in range(150)]
        eventually(end_sessions, seconds=120)
        wait(1)
        eventually(lambda: value(db, f"select count(*) {mine}") <= 4 + 2)  # type: ignore[arg-type]
        command.signal(TERM)
        assert command.end() == 0
        assert "Traceback" not in command.log
    assert effects(db, "start") == dict.fromkeys(jobs, 1)


def test_journey_idle_runner_asks_at_most_one_and_a_half_queries_a_second(own_server: Server, connect: Connect) -> None:
    db = migrated(own_server, connect)
    db.execute("alter system set log_statement = 'all'")
    db.execute("alter system set log_line_prefix = '%a|'")
    db.execute("alter system set log_min_duration_statement = -1")
    db.execute("select pg_reload_conf()")
    log = own_server.base / "log"

    def statements() -> int:
        return len(re.findall(r"jobrunner [^|]*\|LOG:  (?:statement|execute)", log.read_text(errors="replace")))

    with jobrunner(own_server.dsn(), *options(["noop"])) as command:
        ready(db)
        wait(3)
        before, cpu = statements(), cpu_seconds(command.pid)
        wait(10)
        asked, burnt = statements() - before, cpu_seconds(command.pid) - cpu
        sessions = value(db, "select count(*) from pg_stat_activity where starts_with(application_name, 'jobrunner ')")
        command.signal(TERM)
        assert command.end() == 0
    assert 5 <= asked <= 15, f"{asked} statements in 10 s"
    assert burnt < 0.5, f"{burnt} s of CPU in 10 s"
    assert sessions <= 4 + 2


def test_b79_journey_memory_and_threads_stay_as_they_are(db: Connection, fresh_dsn: str) -> None:
    fill = "select mdm.enqueue_job('noop') from generate_series(1, %s)"
    fail = "select mdm.enqueue_job('raises', '{\"error\": \"permanent\"}') from generate_series(1, %s)"
    with jobrunner(fresh_dsn, *options(["noop", "raises"], "--log-level", "error")) as command:
        db.execute(fill, (2000,))
        db.execute(fail, (200,))
        eventually(lambda: statuses(db) == {"done": 2000, "dlq": 200}, seconds=180)
        before, threads = rss_mib(command.pid), os.listdir(f"/proc/{command.pid}/task")
        files = len(os.listdir(f"/proc/{command.pid}/fd"))
        db.execute(fill, (18_000,))
        db.execute(fail, (1000,))
        eventually(lambda: statuses(db) == {"done": 20_000, "dlq": 1200}, seconds=300)
        assert rss_mib(command.pid) - before < 10
        assert os.listdir(f"/proc/{command.pid}/task") == threads
        assert len(os.listdir(f"/proc/{command.pid}/fd")) <= files
        command.signal(TERM)
        assert command.end() == 0


# -- with a server of the test's own


def migrated(server: Server, connect: Connect) -> Connection:
    schema.migrate(server.dsn())
    return prepared(connect(dsn=server.dsn()))


def wait(seconds: float) -> None:
    """Let time pass: what is measured is what happens in it."""
    began = monotonic()
    eventually(lambda: monotonic() - began >= seconds, seconds=seconds + 5)


def stop_server(server: Server, mode: str) -> None:
    pid = devserver.running_pid(server)
    assert pid is not None
    os.kill(pid, {"immediate": signal.SIGQUIT, "fast": signal.SIGINT}[mode])
    eventually(lambda: devserver.running_pid(server) is None)


@pytest.fixture
def restartable(own_server: Server, connect: Connect) -> tuple[Server, Connection]:
    return own_server, migrated(own_server, connect)


def again(server: Server) -> Connection:
    """Start the server again, and connect."""
    devserver.start(server.base)
    return psycopg.connect(server.dsn(), autocommit=True)


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_b49_journey_server_restart_while_handlers_run(restartable: tuple[Server, Connection], mode: str) -> None:
    server, db = restartable
    jobs = [enqueue(db, "loud", {"seconds": 2}) for _ in range(4)]
    with jobrunner(server.dsn(), *options(["loud"])) as command:
        started(db, 4)
        stop_server(server, mode)
        with again(server) as db:
            eventually(lambda: statuses(db) == {"done": 4}, seconds=60)
            assert effects(db, "start") == dict.fromkeys(jobs, 1)
            assert {row["attempts"] for row in (job(db, job_id) for job_id in jobs)} == {1}
            next_id = enqueue(db, "noop")
            command.signal(TERM)
            assert command.end() == 0
            assert status(db, next_id) == "pending"
        assert command.events("database_lost")
        assert command.events("database_back")
        assert "Traceback" not in command.log


def test_b75_journey_outage_is_sat_out_quietly(restartable: tuple[Server, Connection]) -> None:
    server, db = restartable
    with jobrunner(server.dsn(), *options(["noop"])) as command:
        ready(db)
        stop_server(server, "fast")
        lines, cpu = len(command.log.splitlines()), cpu_seconds(command.pid)
        wait(8)
        assert cpu_seconds(command.pid) - cpu < 0.5
        assert len(command.log.splitlines()) - lines < 15
        with again(server) as db:
            job_id = enqueue(db, "noop")
            back = monotonic()
            eventually(lambda: status(db, job_id) == "done")
            assert monotonic() - back < 6 + 6, "6 s (B75), and time for a busy machine"
        stop_server(server, "fast")
        eventually(lambda: len(command.events("database_lost")) == 2)
        asked = monotonic()
        command.signal(TERM)
        assert command.end() == 0
        assert monotonic() - asked < 10, "at once, whatever the grace of 30 s"


def test_b74_journey_jobs_that_an_outage_leaves_behind_are_named_at_the_end(
    restartable: tuple[Server, Connection],
) -> None:
    server, db = restartable
    jobs = [enqueue(db, "loud", {"seconds": 1}) for _ in range(3)] + [enqueue(db, "effect", {"seconds": 1})]
    with jobrunner(server.dsn(), *options(["loud", "effect"], "--grace", "2")) as command:
        started(db, 3)
        eventually(lambda: statuses(db) == {"running": 4})
        stop_server(server, "immediate")
        eventually(lambda: command.events("database_lost"))
        asked = monotonic()
        command.signal(TERM)
        assert command.end() == 5
        assert 2 <= monotonic() - asked < 2 + 6, "grace + 2 s (B74), and time for a busy machine"
        [line] = command.events("jobs_left_to_recovery")
        assert line.endswith(f'count=4 job_ids="{",".join(map(str, jobs))}"')
        assert command.events("runner_stopped")
        assert "Traceback" not in command.log
    with again(server) as db:
        assert statuses(db) == {"running": 4}


def test_b51_journey_frozen_backends_do_not_keep_it_from_ending(restartable: tuple[Server, Connection]) -> None:
    server, db = restartable
    with jobrunner(server.dsn(), *options(["noop"], "--grace", "1")) as command:
        ready(db)
        wait(1.5)  # every session is open, the slots poll
        query = "select pid from pg_stat_activity where starts_with(application_name, 'jobrunner ')"
        frozen = [pid for (pid,) in db.execute(query)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            wait(2)  # by now a poll hangs
            asked = monotonic()
            command.signal(TERM)
            assert command.end() in (0, 5)
            assert monotonic() - asked < 1 + 15
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


def test_b52_journey_read_only_server_is_waited_out(restartable: tuple[Server, Connection]) -> None:
    server, db = restartable
    with jobrunner(server.dsn(), *options(["noop"])) as command:
        ready(db)
        db.execute("alter system set default_transaction_read_only = on")
        db.execute("select pg_reload_conf()")
        db.execute("set default_transaction_read_only = off")
        job_id = enqueue(db, "noop")
        [line] = eventually(lambda: command.events("database_lost"))
        assert "sqlstate=25006" in line
        cpu = cpu_seconds(command.pid)
        wait(3)
        assert cpu_seconds(command.pid) - cpu < 0.3
        db.execute("alter system reset default_transaction_read_only")
        db.execute("select pg_reload_conf()")
        eventually(lambda: status(db, job_id) == "done")
        command.signal(TERM)
        assert command.end() == 0


def test_journey_bar_is_shown_on_a_terminal(db: Connection, fresh_dsn: str) -> None:
    for _ in range(20):
        enqueue(db, "loud", {"seconds": 0.05})
    found = on_a_terminal(fresh_dsn, *options(["loud"], "--drain"))
    assert "20/20" in found
    assert re.search(r"done 20, failed 0, released 0, dead 0 in \d", found)


def on_a_terminal(dsn: str, *arguments: str) -> str:
    """Run a command whose stdout is a terminal; give what it showed."""
    import pty

    ours, theirs = pty.openpty()
    environ = {
        **os.environ,
        "JOBRUNNER_DSN": dsn,
        "PYTHONPATH": os.path.dirname(os.path.dirname(__file__)),
        "TERM": "xterm",
    }
    from runnerkit import COMMAND

    process = subprocess.Popen([str(COMMAND), *arguments], stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # how a terminal says that nobody writes any more
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return shown.decode(errors="replace")


def test_b78_journey_child_of_a_handler_dies_of_a_signal(db: Connection, fresh_dsn: str, tmp_path: Any) -> None:
    """Neither its parent's handler of signals nor its connections are a forked child's business."""
    (tmp_path / "forking.py").write_text(
        "import os, signal, time\n"
        "def handler(job, ctx):\n"
        "    up, tell = os.pipe()\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os.write(tell, b'x')\n"
        "        time.sleep(60)\n"
        "    os.read(up, 1)\n"
        "    os.kill(pid, signal.SIGTERM)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM\n"
        "HANDLERS = {'noop': handler}\n"
    )
    jobs = [enqueue(db, "noop") for _ in range(2)]
    arguments = ("--kinds", "noop", "--handlers", "forking", "--drain")
    code, _, err = run(fresh_dsn, *arguments, PYTHONPATH=str(tmp_path))
    assert (code, err) == (0, "")
    assert {status(db, job_id) for job_id in jobs} == {"done"}


def test_b02_journey_ownership_is_the_lease_not_the_name(db: Connection, fresh_dsn: str) -> None:
    jobs = [enqueue(db, "effect", {"seconds": 0.01}) for _ in range(50)]
    arguments = options(["effect"], "--drain", "--concurrency", "2")
    with jobrunner(fresh_dsn, *arguments) as first, jobrunner(fresh_dsn, *arguments) as second:
        assert (first.end(), second.end()) == (0, 0)
    assert effects(db) == dict.fromkeys(jobs, 1)
    workers = {job(db, job_id)["claimed_by"] for job_id in jobs}
    assert all(re.fullmatch(r"[^/]+/\d+/[0-9a-f-]{36}", worker) for worker in workers)
    assert conninfo_to_dict(fresh_dsn)["user"] == "postgres"
