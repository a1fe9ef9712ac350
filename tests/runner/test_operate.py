"""pause, resume, explain, stop and status through the real command."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from incli import run
from jobrunner.schema import SCHEMA_VERSION
from jobs import Connection, actions, audit, call, enqueue, fail, make_job, make_kind, status, value
from runnerkit import COMMAND, PATH

pytestmark = pytest.mark.one_leg("15")


def as_json(dsn: str, *arguments: str) -> Any:
    """What a command prints with --json; it must succeed."""
    code, out, log = run(dsn, *arguments, "--json")
    assert code == 0, log
    return json.loads(out)


def on_terminal(dsn: str, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal of 100 columns and answer its question: exit code and what the terminal showed."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "JOBRUNNER_DSN": dsn, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": PATH}
    with subprocess.Popen(
        [str(COMMAND), *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    ) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # the last one has closed the terminal
            pass
        os.close(ours)
        return process.wait(30), shown.decode()


# -- pause, resume


def test_pause_and_resume_say_what_they_did_and_are_audited(conn: Connection, dsn: str) -> None:
    paused = "select coalesce(paused_until = 'infinity', false) from mdm.aa_job_kind where job_kind = 'reindex'"
    code, out, _ = run(dsn, "pause", "reindex", "--reason", "index rebuild")
    assert (code, out) == (0, "reindex is paused until `jobrunner resume reindex`\n")
    assert value(conn, paused)
    assert run(dsn, "resume", "reindex")[:2] == (0, "reindex is open\n")
    assert not value(conn, paused)
    assert actions(conn, "reindex") == ["job_kind_changed"] * 2
    assert audit(conn, "reindex")[0]["payload"]["reason"] == "index rebuild"


def test_pause_until_a_time(conn: Connection, dsn: str) -> None:
    assert run(dsn, "pause", "reindex", "--until", "2100-01-01T00:00:00Z")[0] == 0
    assert value(conn, "select paused_until = '2100-01-01Z' from mdm.aa_job_kind where job_kind = 'reindex'")
    code, _, log = run(dsn, "pause", "reindex", "--until", "2100-01-01T00:00:00")
    assert code == 2
    assert "no offset" in log


def test_pause_until_the_year_10000_is_said_as_it_was_given(conn: Connection, dsn: str) -> None:
    code, out, log = run(dsn, "pause", "reindex", "--until", "9999-12-31T23:00:00-12:00")
    assert (code, out, log) == (0, "reindex is paused until 9999-12-31 23:00:00-12:00\n", "")
    assert run(dsn, "explain", str(enqueue(conn)))[0] == 0


def test_pause_until_a_time_that_has_passed_is_refused(conn: Connection, dsn: str) -> None:
    code, out, log = run(dsn, "pause", "reindex", "--until", "2020-01-01T00:00:00Z")
    assert (code, out) == (2, "")
    assert "has passed" in log
    assert value(conn, "select paused_until is null from mdm.aa_job_kind where job_kind = 'reindex'")


def test_every_command_prints_json(conn: Connection, dsn: str) -> None:
    """Those that act and have little to say; the others are tested where they are."""
    job_id = as_json(dsn, "enqueue", "reindex")["job_id"]
    assert status(conn, job_id) == "pending"
    until = "2100-01-01T00:00:00+00:00"
    assert as_json(dsn, "pause", "reindex") == {"kind": "reindex", "state": "paused", "until": None}
    assert as_json(dsn, "pause", "reindex", "--until", until)["until"] == until
    assert as_json(dsn, "resume", "reindex") == {"kind": "reindex", "state": "open"}
    assert as_json(dsn, "migrate", "--check") == {"version": SCHEMA_VERSION, "migrations": [], "changed": []}
    assert {each["kind"] for each in as_json(dsn, "kinds")} >= {"reindex", "email_send"}


def test_pause_of_an_unknown_kind_is_one_line(dsn: str, conn: Connection) -> None:
    code, out, log = run(dsn, "pause", "nope")
    assert (code, out) == (1, "")
    assert "MJ003" in log
    assert log.count("\n") == 1


def test_actor_is_who_is_named(conn: Connection, dsn: str) -> None:
    who = value(conn, "insert into mdm.aa_principal (name, kind) values ('ada', 'user') returning id")
    assert run(dsn, "pause", "reindex", "--actor", str(who))[0] == 0
    assert audit(conn, "reindex")[0]["actor_principal_id"] == who
    code, _, log = run(dsn, "resume", "reindex", "--actor", "ada")
    assert code == 2
    assert "no principal's id" in log


# -- explain


def test_explain_gives_every_reason(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn)
    run(dsn, "pause", "reindex", "--reason", "index rebuild")
    found = as_json(dsn, "explain", str(job_id))
    assert [each["reason"] for each in found] == ["kind paused", "no live runner", "next in line"]
    assert found[0]["detail"] == "index rebuild"
    code, out, _ = run(dsn, "explain", str(job_id))
    assert code == 0
    assert out.splitlines()[0].split() == ["reason", "detail", "until"]


def test_explain_of_nothing_is_one_line(conn: Connection, dsn: str) -> None:
    code, out, log = run(dsn, "explain", "1")
    assert (code, out) == (1, "")
    assert "MJ002" in log


# -- stop


def test_stop_changes_nothing_without_yes(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn)
    code, out, log = run(dsn, "stop", str(job_id))
    assert code == 0
    assert f"{job_id}" in out
    assert "nothing was changed: add --yes" in log
    assert status(conn, job_id) == "pending"


def test_stop_of_a_job_that_has_ended_is_refused_before_it_asks(conn: Connection, dsn: str) -> None:
    code, out, log = run(dsn, "stop", str(make_job(conn, "done")["id"]))
    assert code == 1
    assert "MJ004" in out
    assert "--yes" not in log


def test_stop_acts_on_each_and_says_what_was_refused(conn: Connection, dsn: str) -> None:
    running, done = make_job(conn, "running")["id"], make_job(conn, "done")["id"]
    code, out, log = run(dsn, "stop", str(running), str(done), "99", "--yes", "--json", "--reason", "broken")
    outcomes = {each["job_id"]: each for each in json.loads(out)}
    assert outcomes[running]["outcome"] == "stopped"
    assert "MJ004" in outcomes[done]["outcome"]
    assert "MJ002" in outcomes[99]["outcome"]
    assert outcomes[99]["remedy"]
    assert code == 1
    assert "2 jobs of 3 could not be acted on" in log
    assert (status(conn, running), status(conn, done)) == ("failed", "done")


@pytest.mark.parametrize(("answer", "becomes"), [("y\n", "failed"), ("n\n", "pending"), ("\n", "pending")])
def test_stop_asks_on_a_terminal(conn: Connection, dsn: str, answer: str, becomes: str) -> None:
    job_id = enqueue(conn)
    code, shown = on_terminal(dsn, answer, "stop", str(job_id))
    assert code == 0
    assert "stop 1 job? [y/N]" in shown
    assert status(conn, job_id) == becomes


@pytest.mark.parametrize(("verb", "which", "becomes"), [("replay", "1", "pending"), ("discard", "--all", "gone")])
def test_dlq_asks_on_a_terminal(fresh_dsn: str, verb: str, which: str, becomes: str) -> None:
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        assert make_job(conn, "dlq")["id"] == 1
        for answer, expected in (("n\n", "dlq"), ("y\n", becomes)):
            code, shown = on_terminal(fresh_dsn, answer, "dlq", verb, which)
            assert code == 0
            assert f"{verb} 1 job? [y/N]" in shown
            assert status(conn, 1) == expected


@pytest.mark.parametrize("number", ["0", "-1", "x", str(2**63)])
def test_id_that_is_none_is_refused(dsn: str, number: str) -> None:
    assert run(dsn, "stop", "--yes", "--", number)[0] == 2


WARN = """
create function public.warn() returns trigger language plpgsql as $$ begin raise warning 'no ink'; return new; end $$;
create trigger warn before update on mdm.aa_job for each row execute function public.warn()
"""


def test_stop_says_what_the_server_warns_of(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    conn = connect(dsn=fresh_dsn)
    job_id = enqueue(conn)
    conn.execute(WARN)
    code, _, log = run(fresh_dsn, "stop", str(job_id), "--yes")
    assert code == 0
    assert 'warning server_warning session=command sqlstate=01000 message="no ink"' in log


# -- status


def test_status_shows_counts_and_warnings(conn: Connection, dsn: str) -> None:
    make_job(conn, "dlq")
    found = as_json(dsn, "status")
    assert {each["kind"]: each["dlq"] for each in found["kinds"]}["reindex"] == 1
    assert ("reindex", "dlq", "1") in {(each["subject"], each["item"], each["value"]) for each in found["health"]}
    _, out, _ = run(dsn, "status")
    assert "look into mdm.v_job_dlq" in out


def test_status_of_a_worker_says_that_health_is_hidden(conn: Connection, dsn: str) -> None:
    worker = make_conninfo(dsn, user="test_mdm_worker")
    assert as_json(worker, "status")["health"] is None
    assert "no member of mdm_monitor" in run(worker, "status")[1]


# -- output


def test_terminal_gets_a_table_that_fits_and_no_escape_of_a_job(conn: Connection, dsn: str) -> None:
    make_kind(conn, "greet", max_attempts=1)
    enqueue(conn, "greet")
    [claimed] = call(conn, "claim_job", worker_id="w", kinds=["greet"])
    fail(conn, claimed, "out of\n\x1b]0;evil\x07 paper " + "very " * 100)
    code, shown = on_terminal(dsn, "", "dlq", "list")
    assert code == 0
    assert "]0;evil" in shown
    assert "\x1b]0;evil" not in shown
    assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in shown.splitlines()) <= 100
    _, out, _ = run(dsn, "dlq", "list")
    assert len(out.splitlines()) == 2


def test_actor_that_does_not_exist_is_kept_as_named(conn: Connection, dsn: str) -> None:
    who = uuid4()
    assert run(dsn, "pause", "reindex", "--actor", str(who))[0] == 0
    assert audit(conn, "reindex")[0]["actor_principal_id"] == who


# -- completion

COMPLETIONS = [("jobrunner dl", "dlq"), ("jobrunner dlq re", "replay"), ("jobrunner --conc", "--concurrency")]


@pytest.mark.one_leg("18")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(("words", "completed"), COMPLETIONS)
def test_completion(shell: str, words: str, completed: str) -> None:
    """What the script that --show-completion prints asks for."""
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environ = {**os.environ, "_JOBRUNNER_COMPLETE": f"complete_{shell}", "PYTHONPATH": PATH, **asked}
    result = subprocess.run([str(COMMAND)], env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert completed in re.split(r"[^\w-]+", result.stdout)
