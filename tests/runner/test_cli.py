"""The command line as people use it: every mistake is one line that names the remedy, and leaves nothing half done."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import incli
from jobrunner import __version__, commands, logs
from jobrunner.cli import execute
from jobs import Connection, claim_one, enqueue, finish, job, make_kind, make_tenant, status, statuses, value
from runnerkit import options, run

pytestmark = pytest.mark.one_leg("18")

Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command, in this process, that must fail: its exit code, and one line on stderr, which is returned."""
    monkeypatch.setattr(logs, "setup", lambda log_format, level: None)
    for name in [name for name in os.environ if name.startswith(("PG", "JOBRUNNER"))]:
        monkeypatch.delenv(name)

    def run_it(dsn: str, code: int, *arguments: str) -> str:
        monkeypatch.setenv("JOBRUNNER_DSN", dsn)
        found = execute(list(arguments))
        out, err = capsys.readouterr()
        assert (found, out) == (code, ""), err
        [line] = err.splitlines()
        assert line.startswith("jobrunner: ")
        return line

    return run_it


# -- enqueue


def test_cli_enqueue_prints_the_id_and_passes_everything_on(conn: Connection, dsn: str) -> None:
    tenant = make_tenant(conn)
    code, out, err = run(
        dsn,
        *("enqueue", "reindex", "--payload", '{"n": 1.50}', "--tenant", str(tenant), "--key", "k", "--priority", "-7"),
        *("--at", "2031-01-31T12:00:00+02:00", "--max-attempts", "9"),
    )
    assert (code, err) == (0, "")
    row = job(conn, int(out))
    assert (row["tenant_id"], row["idempotency_key"], row["priority"], row["max_attempts"]) == (tenant, "k", -7, 9)
    assert row["available_at"].isoformat().startswith("2031-01-31T")
    assert row["available_at"].timestamp() == 1927620000
    assert value(conn, "select payload::text from mdm.aa_job") == '{"n": 1.50}'


def test_cli_enqueue_of_an_existing_key_gives_its_id_or_updates_it(conn: Connection, dsn: str) -> None:
    first = run(dsn, "enqueue", "reindex", "--key", "k")[1]
    assert run(dsn, "enqueue", "reindex", "--key", "k", "--payload", '{"a": 1}')[1] == first
    assert job(conn, int(first))["payload"] == {}
    update = ("--on-conflict", "update", "--payload", '{"a": 1}')
    assert run(dsn, "enqueue", "reindex", "--key", "k", *update)[1] == first
    assert job(conn, int(first))["payload"] == {"a": 1}


def test_cli_enqueue_reads_the_payload_from_a_file(conn: Connection, dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "payload.json"
    path.write_text(json.dumps({"text": "\u00e4" * 100_000}))
    out = run(dsn, "enqueue", "reindex", "--payload", f"@{path}")[1]
    assert len(job(conn, int(out))["payload"]["text"]) == 100_000


@pytest.mark.parametrize(
    ("arguments", "code", "remedy"),
    [
        (("reindex", "--payload", "[1]"), 2, 'write it as \'{"name": "value"}\''),
        (("reindex", "--payload", "null"), 2, "not a JSON object"),
        (("reindex", "--payload", "{a: 1}"), 2, "quote it for the shell"),
        (("reindex", "--payload", '{"a": NaN}'), 2, "NaN is no JSON number"),
        (("reindex", "--payload", '{"a": ' + "[" * 30_000 + "]" * 30_000 + "}"), 2, "make it flatter"),
        (("reindex", "--payload", '{"a": "\\u0000"}'), 1, "[22P05]: take \\u0000 out"),
        (("reindex", "--payload", '{"a": "\\ud800"}'), 1, "[22P02]: correct the value"),
        (("reindex", "--payload", '{"a": 1e200000}'), 1, "[22003]: use a smaller number"),
        (("reindex", "--payload", "@/nowhere"), 2, "name a readable file"),
        (("reindex", "--at", "2031-01-31T12:00:00"), 2, "write 2031-01-31T12:00:00+00:00"),
        (("reindex", "--at", "2031-01-31"), 2, "write 2031-01-31T00:00:00+00:00"),
        (("reindex", "--at", "tomorrow"), 2, "write it as 2030-01-31T12:00:00+01:00"),
        (("reindex", "--at", "0001-01-01T00:00:00Z"), 1, "[MJ005]"),
        (("reindex", "--tenant", "42"), 2, "use the id (a UUID) of a tenant"),
        (("reindex", "--tenant", "00000000-0000-0000-0000-000000000042"), 1, "[MJ005]"),
        (("email_send",), 1, "[MJ005]"),
        (("rindex",), 1, "[MJ003]"),
        (("",), 1, "[MJ003]"),
        (("reindex", "--key", "x" * 256), 1, "[MJ005]"),
        (("reindex", "--key", ""), 1, "[MJ005]"),
        (("reindex", "--priority", "2147483648"), 2, "--priority"),
        (("reindex", "--priority", "low"), 2, "--priority"),
        (("reindex", "--max-attempts", "0"), 2, "--max-attempts"),
        (("reindex", "--on-conflict", "replace"), 2, "--on-conflict"),
        ((), 2, "KIND"),
        (("reindex", "--colour", "red"), 2, "--colour"),
        (("reindex", "{}"), 2, "(see jobrunner enqueue --help)"),
    ],
    ids=lambda value: None,
)
def test_cli_enqueue_refuses(
    refused: Refused, conn: Connection, dsn: str, arguments: tuple[str, ...], code: int, remedy: str
) -> None:
    line = refused(dsn, code, "enqueue", *arguments)
    assert remedy.lower() in line.lower()
    assert value(conn, "select count(*) from mdm.aa_job") == 0


def test_cli_enqueue_refuses_300_megabytes(refused: Refused, conn: Connection, dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("w") as file:
        file.write('{"text": "')
        for _ in range(300):
            file.write("x" * 2**20)
        file.write('"}')
    assert "more than 32 MiB: store the data and pass a reference" in refused(
        dsn, 2, "enqueue", "reindex", "--payload", f"@{path}"
    )
    assert value(conn, "select count(*) from mdm.aa_job") == 0


# -- status, kinds, version, help


def test_cli_status_counts_what_stands_where(conn: Connection, dsn: str) -> None:
    for _ in range(3):
        enqueue(conn)
    finish(conn, claim_one(conn))
    claim_one(conn)
    enqueue(conn, available_at="2100-01-01")
    code, out, _ = run(dsn, "status")
    found = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert code == 0
    assert dict(zip(found["kind"], found["reindex"], strict=True)) == {
        "due": "1", "later": "1", "running": "1", "done": "1", "failed": "0", "dlq": "0", "state": "open"
    }  # fmt: skip


def test_cli_kinds_shows_handlers_and_settings(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop", handler_timeout="90 seconds")
    code, out, _ = run(dsn, "kinds", "--handlers", "testhandlers")
    assert code == 0
    assert re.search(r"^noop +testhandlers\.noop +open +900 s +90 s$", out, re.MULTILINE)
    assert re.search(r"^killer +testhandlers\.killer +not registered +- +-$", out, re.MULTILINE)
    assert re.search(r"^bulk_import +\S+ +open +3600 s +-$", out, re.MULTILINE)


def test_cli_says_its_version(dsn: str) -> None:
    assert run(dsn, "--version") == (0, f"jobrunner {__version__}\n", "")


def test_cli_help_documents_the_exit_codes(dsn: str) -> None:
    code, out, _ = run(dsn, "--help")
    text = " ".join(out.split())
    assert code == 0
    for expected in (
        "2 the command line",
        "3 the schema",
        "4 the database",
        "5 ended before",
        "70 more handlers",
        "130 interr",
    ):
        assert expected in text


# -- the pool's options


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--kinds", "nope"), "there are handlers for bulk_import, cleanup_jobs, "),
        (("--kinds", "reindex,nope"), "no handler for kind nope"),
        (("--kinds", ","), "--kinds names nothing"),
        (("--tenants", "42"), "use the id (a UUID) of a tenant"),
        (("--drain", "--once"), "choose one"),
        (("--concurrency", "0"), "--concurrency"),
        (("--grace", "-1"), "--grace"),
        (("--log-format", "xml"), "--log-format"),
        (("--handlers", "no_such_module"), "is it installed, or on PYTHONPATH?"),
        (("--handlers", ""), "--handlers names nothing"),
        (("--handlers", "runnerkit,no_such_module"), "needs a dict HANDLERS"),
        (("--handlers", "testhandlers,no_such_module"), "--handlers no_such_module cannot be imported"),
        (("--listen-dsn", "nonsense"), "--listen-dsn is not a connection string"),
        (("--handlers", "runnerkit"), "needs a dict HANDLERS"),
        (("--handlers", "./my_handlers.py"), "is a file: name its module, my_handlers; "),
        (("run",), "'run'. (see jobrunner --help)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_b81_cli_refuses_to_start(refused: Refused, dsn: str, arguments: tuple[str, ...], remedy: str) -> None:
    assert remedy in refused(dsn, 2, *arguments)


def test_cli_warns_of_a_kind_that_is_not_registered_and_works_on(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    enqueue(conn, "noop")
    code, out, err = run(dsn, *options(["noop", "killer"], "--drain"))
    assert (code, statuses(conn)) == (0, {"done": 1})
    assert "kind_not_registered job_kind=killer" in err
    assert out.startswith("done 1, failed 0, released 0, dead 0 in ")


def test_cli_warns_of_a_tenant_that_does_not_exist_and_works_on(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    tenant, unknown = make_tenant(conn), "00000000-0000-4000-8000-000000000000"
    enqueue(conn, "noop", tenant_id=tenant)
    code, _, err = run(dsn, *options(["noop"], "--drain", "--tenants", f"{tenant},{unknown}"))
    assert (code, statuses(conn)) == (0, {"done": 1})
    [line] = err.splitlines()
    assert line.endswith(f'warning tenant_not_served tenant_id={unknown} problem="there is no such tenant"')


def test_cli_warns_of_a_cap_of_a_kind_without_a_handler(conn: Connection, dsn: str) -> None:
    code, _, log = run(dsn, "--drain", "--kinds", "reindex", "--cap", "reindx=5,email_send=5")
    assert code == 0
    assert log.strip().endswith('warning cap_of_no_handler job_kind=reindx remedy="correct the kind in --cap"')


def test_b57_cli_works_through_a_pooler(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    for _ in range(20):
        enqueue(conn, "noop")
    code, out, err = run(dsn, *options(["noop"], "--drain", "--pooler"))
    assert (code, err, statuses(conn)) == (0, "", {"done": 20})
    assert out.startswith("done 20, ")


def test_cli_handlers_option_wins_over_the_package(conn: Connection, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("HANDLERS = {'reindex': lambda job, ctx: None}\n")
    enqueue(conn, payload={"nonsense": True})
    assert run(dsn, "--kinds", "reindex", "--handlers", "mine", "--drain", PYTHONPATH=str(tmp_path))[0] == 0
    assert statuses(conn) == {"done": 1}


async def a_coroutine(job: Any, ctx: Any) -> None:
    """No handler."""


def a_generator(job: Any, ctx: Any) -> Iterator[None]:
    """No handler either: called, it would do nothing."""
    yield


@pytest.mark.parametrize(
    "handler",
    [a_coroutine, a_generator, "no function", lambda job: None],
    ids=["async", "yield", "str", "one argument"],
)
def test_cli_refuses_a_handler_that_is_no_plain_function(
    refused: Refused, dsn: str, monkeypatch: pytest.MonkeyPatch, handler: Any
) -> None:
    module = ModuleType("mine")
    module.HANDLERS = {"reindex": handler}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", module)
    assert "must be a plain function of (job, ctx)" in refused(dsn, 2, "--handlers", "mine")


def test_cli_refuses_a_kind_that_is_no_text(refused: Refused, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mine")
    module.HANDLERS = {7: print}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine", module)
    assert "the kind 7 is no text" in refused(dsn, 2, "--handlers", "mine")


def test_cli_names_the_line_of_a_handler_module_that_is_no_python(
    refused: Refused, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no_python.py").write_text("def greet(job, ctx:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "(no_python.py, line 1): correct that line" in refused(dsn, 2, "--handlers", "no_python")


@pytest.mark.parametrize(
    ("body", "remedy"),
    [("1 / 0", "ZeroDivisionError: division by zero: see"), ("raise SystemExit(3)", "SystemExit: 3: see")],
)
def test_cli_refuses_handlers_whose_import_fails(
    refused: Refused, dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, remedy: str
) -> None:
    (tmp_path / "broken_at_import.py").write_text(f"{body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    line = refused(dsn, 2, "--handlers", "broken_at_import")
    assert remedy in line
    assert line.endswith("broken_at_import.py:1")


@pytest.mark.parametrize(
    ("options", "subcommand"),
    [
        (("--dsn", "host=/nowhere"), ("status",)),
        (("--dsn=x",), ("dlq", "list")),
        (("--drain",), ("enqueue", "reindex")),
    ],
    ids=lambda words: " ".join(words),
)
def test_cli_refuses_options_before_a_subcommand(
    refused: Refused, conn: Connection, dsn: str, options: tuple[str, ...], subcommand: tuple[str, ...]
) -> None:
    line = refused(dsn, 2, *options, *subcommand)
    assert f"{options[0].partition('=')[0]} before {subcommand[0]} has no effect" in line
    assert value(conn, "select count(*) from mdm.aa_job") == 0


def test_cli_finds_handlers_of_other_packages(conn: Connection, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "other_package.py").write_text("def work(job, ctx): pass\n")
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jobrunner.handlers]\nforeign = other_package:work\n")
    make_kind(conn, "foreign")
    enqueue(conn, "foreign")
    assert run(dsn, "--kinds", "foreign", "--drain", PYTHONPATH=str(tmp_path))[0] == 0
    assert statuses(conn) == {"done": 1}


def test_cli_logs_json_with_the_fields_of_the_job(conn: Connection, dsn: str) -> None:
    make_kind(conn, "raises")
    job_id = enqueue(conn, "raises", {"error": "permanent", "secret": "hidden"})
    _, _, err = run(dsn, *options(["raises"], "--drain", "--log-format", "json"))
    [line] = [json.loads(text) for text in err.splitlines()]
    assert (line["event"], line["level"], line["job_id"], line["attempt"]) == ("job_dead", "error", job_id, 1)
    assert line.keys() >= {"time", "job_kind", "tenant_id", "worker_id", "error", "where"}
    assert "hidden" not in err


def test_cli_logs_what_ended_a_thread(conn: Connection, dsn: str) -> None:
    """One line, in the form of the log; the job of the thread has failed, and the drain goes on."""
    fatal, good = enqueue(conn, make_kind(conn, "saboteur")), enqueue(conn, make_kind(conn, "noop"))
    code, _, log = run(dsn, *options(["saboteur", "noop"], "--drain", "--log-format", "json", "--concurrency", "1"))
    [died] = [line for line in map(json.loads, log.splitlines()) if line["event"] == "thread_died"]
    assert (code, died["thread"], died["level"]) == (0, "slot-1", "error")
    assert died["traceback"].endswith("AttributeError: 'NoneType' object has no attribute 'ran'")
    assert job(conn, fatal)["last_error"].startswith("SlotDied: ")
    assert (status(conn, fatal), status(conn, good)) == ("pending", "done")


def test_cli_drain_tells_its_progress_in_plain_lines(conn: Connection, dsn: str) -> None:
    make_kind(conn, "effect")
    conn.execute("create table if not exists public.effect (job_id bigint, label text, pid int)")
    for _ in range(4):
        enqueue(conn, "effect", {"seconds": 0.9})
    _, out, _ = run(dsn, *options(["effect"], "--drain", "--concurrency", "1"))
    *lines, last = out.splitlines()
    assert lines
    assert all(re.fullmatch(r"[1-4] of 4 jobs", line) for line in lines)
    assert re.fullmatch(r"done 4, failed 0, released 0, dead 0 in \d+\.\d s", last)
    conn.execute("drop table public.effect")


# -- where the database is


def test_cli_without_a_database_says_how_to_give_one(refused: Refused) -> None:
    assert "use --dsn, or set JOBRUNNER_DSN" in refused("", 2, "status")


@pytest.mark.parametrize("command", [("status",), ("--drain",), ("migrate",), ("enqueue", "reindex")], ids=" ".join)
def test_cli_missing_database(refused: Refused, dsn: str, command: tuple[str, ...]) -> None:
    line = refused(dsn.replace("/mdm_", "/nowhere_"), 4, *command)
    assert "does not exist: create it first" in line


def test_cli_missing_server(refused: Refused) -> None:
    line = refused("postgresql://postgres@/mdm?host=/nowhere&port=5432", 4, "status")
    assert "is the server running" in line


@pytest.mark.parametrize("command", [("status",), ("--drain",), ("enqueue", "reindex")], ids=" ".join)
def test_cli_missing_schema(refused: Refused, empty_dsn: str, command: tuple[str, ...]) -> None:
    assert "run `jobrunner migrate`" in refused(empty_dsn, 3, *command)


@pytest.mark.parametrize(("version", "remedy"), [(0, "older than 1: run `jobrunner migrate`"), (99, "newer than")])
def test_b93_cli_schema_of_another_version(
    refused: Refused, fresh_dsn: str, connect: Any, version: int, remedy: str
) -> None:
    connect(dsn=fresh_dsn).execute(
        f"create or replace function mdm.job_schema_version() returns int language sql immutable as 'select {version}'"
    )
    for command in (("--drain",), ("enqueue", "reindex")):
        assert remedy in refused(fresh_dsn, 3, *command)


def test_cli_wrong_password(refused: Refused, own_server: Any) -> None:
    from psycopg import connect

    with connect(own_server.dsn(), autocommit=True) as admin:
        admin.execute("create role guest login password 'right'")
        admin.execute("create table public.hba (line text)")
        hba = Path(value(admin, "show hba_file"))
        hba.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        admin.execute("select pg_reload_conf()")
    dsn = own_server.dsn().replace("postgres@", "guest:wrong@")
    line = refused(dsn, 4, "status")
    assert "password authentication failed" in line
    assert "check the password" in line
    assert "wrong" not in line


def test_cli_migrate_and_check(refused: Refused, empty_dsn: str) -> None:
    assert "run `jobrunner migrate`" in refused(empty_dsn, 3, "migrate", "--check")
    code, out, err = run(empty_dsn, "migrate")
    assert (code, err) == (0, "")
    assert out.startswith("schema mdm is at version 1: applied ")
    assert run(empty_dsn, "migrate", "--check")[:2] == run(empty_dsn, "migrate")[:2]
    assert run(empty_dsn, "migrate")[1].startswith("schema mdm is up to date (version 1")


@pytest.mark.parametrize(
    ("role", "arguments"),
    [("mdm_producer", ("enqueue", "reindex")), ("mdm_worker", ("--drain",)), ("mdm_worker", ("status",))],
    ids=["producer", "worker", "status"],
)
def test_b64_cli_works_with_the_documented_roles(dsn: str, role: str, arguments: tuple[str, ...]) -> None:
    code, _, err = run(dsn.replace("postgres@", f"test_{role}@"), *arguments)
    assert (code, err) == (0, "")


def test_cli_role_without_rights_is_told_which_to_ask_for(refused: Refused, dsn: str) -> None:
    line = refused(dsn.replace("postgres@", "test_mdm_monitor@"), 1, "--drain")
    assert "grant a role such as mdm_worker" in line


def test_cli_login_that_may_not_work_is_told_before_it_claims(refused: Refused, conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, "reindex")
    assert "mdm_worker" in refused(dsn.replace("postgres@", "test_mdm_admin@"), 1, "--kinds", "reindex")
    assert (job(conn, job_id)["status"], job(conn, job_id)["attempts"]) == ("pending", 0)


@pytest.mark.parametrize(
    ("role", "arguments", "wanted"),
    [
        ("mdm_producer", ("status",), "mdm_monitor"),
        ("mdm_producer", ("kinds",), "mdm_worker"),
        ("mdm_worker", ("enqueue", "reindex"), "mdm_producer"),
        ("mdm_worker", ("dlq", "list"), "mdm_monitor"),
        ("mdm_worker", ("explain", "1"), "mdm_monitor"),
        ("mdm_monitor", ("pause", "reindex"), "mdm_admin"),
        ("mdm_monitor", ("resume", "reindex"), "mdm_admin"),
        ("mdm_monitor", ("stop", "1", "--yes"), "mdm_admin"),
        ("mdm_monitor", ("dlq", "replay", "--all", "--yes"), "mdm_admin"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_cli_login_is_told_which_role_a_command_takes(
    conn: Connection, dsn: str, role: str, arguments: tuple[str, ...], wanted: str
) -> None:
    code, out, err = incli.run(dsn.replace("postgres@", f"test_{role}@"), *arguments)
    assert (code, out) == (1, "")
    assert err.endswith(f" [42501]: have an administrator grant {wanted} to this login\n")
    code, _, err = incli.run(dsn.replace("postgres@", f"test_{wanted}@"), *arguments)
    assert "42501" not in err


def test_cli_migrate_without_rights_says_who_may(refused: Refused, dsn: str) -> None:
    line = refused(dsn.replace("postgres@", "test_mdm_worker@"), 3, "migrate", "--check")
    assert line.endswith("log in as a superuser, or as the owner of the database with CREATEROLE")


def test_cli_interrupted_command_says_so(conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.schema, "require_schema", ctrl_c)
    assert incli.run(dsn, "enqueue", "reindex") == (130, "", "jobrunner: interrupted\n")
    assert value(conn, "select count(*) from mdm.aa_job") == 0
