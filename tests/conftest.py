"""Fixtures: one server a session, one shared migrated database, copies of a template where a test needs its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pytest_postgresql import factories

from cluster import PgServer, clean, database, has_pg_cron, make_logins, missing, running_server, what_it_holds
from jobrunner import devserver, schema
from jobrunner.devserver import Server
from leftovers import begin_run
from sqlcoverage import GATE, sql_coverage

Connection = psycopg.Connection[Any]
JOURNEYS = Path(__file__).parent / "journeys"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sql-coverage", action="store_true", help="report what the PL/pgSQL functions ran, and gate it")


def pytest_configure(config: pytest.Config) -> None:
    begin_run()
    sql_coverage.wanted = config.getoption("--sql-coverage")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """When bin/test runs both legs at once, what does not depend on the server's version runs on one of them.

    The journeys of each leg are a run of their own.
    """
    leg, part = os.environ.get("JOBRUNNER_TEST_LEG"), os.environ.get("JOBRUNNER_TEST_PART")
    elsewhere = [
        item for item in items for mark in item.iter_markers("one_leg") if leg is not None and mark.args[0] != leg
    ]
    elsewhere += [item for item in items if part and item.path.is_relative_to(JOURNEYS) != (part == "journeys")]
    if elsewhere:
        config.hook.pytest_deselected(items=list(dict.fromkeys(elsewhere)))
        items[:] = [item for item in items if item not in set(elsewhere)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what is in its database to the report of a test that failed."""
    report = yield
    given = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed:
        for name in ("dsn", "fresh_dsn"):
            if name in given:
                report.sections.append((f"jobs and sessions of {name}", what_it_holds(given[name])))
    return report


def pytest_report_header(config: pytest.Config) -> str:
    binaries = devserver.find_bin()
    return f"PostgreSQL {devserver.version(binaries)} ({binaries})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if "JOBRUNNER_TEST_COUNTS" in os.environ:  # bin/test adds up its legs
        words = (("passed", "xfailed"), ("failed", "error", "xpassed"), ("skipped",))
        numbers = [sum(len(terminalreporter.stats.get(word, ())) for word in group) for group in words]
        Path(os.environ["JOBRUNNER_TEST_COUNTS"]).write_text(" ".join(map(str, numbers)) + "\n")
    if sql_coverage.wanted:
        sql_coverage.report(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if sql_coverage.wanted and sql_coverage.total() < GATE and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def pg_server() -> Iterator[PgServer]:
    """The session's server, from $JOBRUNNER_PG_BIN or what devserver.find_bin finds."""
    with running_server() as server:
        yield PgServer(server, str(server.socket_dir), server.port, server.superuser)


def load_template(**where: Any) -> None:
    """Migrate the template; pytest-postgresql says where it is."""
    dsn = make_conninfo(**{key: where[key] for key in ("host", "port", "user", "dbname")})
    schema.migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        make_logins(conn)


template = factories.postgresql_noproc(depends_on="pg_server", load=[load_template])


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for this test alone, to be stopped, killed or filled; its database `mdm` is empty."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def cron_server() -> Iterator[Server]:
    """A server that runs pg_cron in its migrated database `mdm`."""
    if not has_pg_cron():
        missing("pg_cron", f"{devserver.find_bin()} comes without it")
    options = {
        "shared_preload_libraries": "pg_cron",
        "cron.database_name": "mdm",
        "cron.use_background_workers": "on",
        "max_worker_processes": "20",
    }
    with running_server(**options) as server:
        schema.migrate(server.dsn("mdm"))
        with psycopg.connect(server.dsn("mdm"), autocommit=True) as conn:
            conn.execute("create extension pg_cron")
            make_logins(conn)
        yield server


@pytest.fixture
def cron_dsn(cron_server: Server) -> Iterator[str]:
    """The database that pg_cron runs in, as `create extension` leaves it: what a test does there is undone."""
    dsn = cron_server.dsn("mdm")
    yield dsn
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("select cron.unschedule(jobid) from cron.job")
        conn.execute("delete from cron.job_run_details")
        conn.execute("revoke usage on schema cron from mdm_admin")


@pytest.fixture
def empty_dsn(pg_server: PgServer) -> Iterator[str]:
    """An empty database, not migrated."""
    with database(pg_server) as dsn:
        yield dsn


@pytest.fixture
def fresh_dsn(pg_server: PgServer, template: Any) -> Iterator[str]:
    """A migrated database for this test alone: for DDL, settings, and whatever cannot be deleted again."""
    with database(pg_server, template.template_dbname) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def shared_admin(pg_server: PgServer, template: Any) -> Iterator[Connection]:
    """The connection that cleans the shared database."""
    with database(pg_server, template.template_dbname) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def dsn(pg_server: PgServer, shared_admin: Connection) -> str:
    """The shared migrated database, as the installer: no rows but the seed, no sessions left of earlier tests."""
    clean(shared_admin)
    return pg_server.dsn(shared_admin.info.dbname)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    """An autocommit connection to the shared database, as the installer."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Connection]]:
    """Open connections, closed at the end: connect(), connect(role="mdm_worker"), connect(dsn=fresh_dsn).

    Autocommit unless told otherwise; `role` logs in as test_<role>, a member of it; the rest is psycopg's.
    """
    opened: list[Connection] = []

    def open_one(role: str | None = None, dsn: str | None = None, **options: Any) -> Connection:
        where = dsn or request.getfixturevalue("dsn")
        if role is not None:
            options["user"] = f"test_{role}"
        connection = psycopg.connect(where, **{"autocommit": True, **options})
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What the runner logs in this process; `said` of runnerkit takes an event out of it."""
    monkeypatch.setattr(logging.getLogger("jobrunner"), "propagate", True)
    caplog.set_level(logging.DEBUG, logger="jobrunner")
    return caplog
