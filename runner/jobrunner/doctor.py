"""The subcommand `doctor`: looks at everything around the jobs, each line ok, warn or fail with the remedy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import psycopg
import typer

from jobrunner import checks
from jobrunner.checks import FAIL, OK, WARN, Finding, Look
from jobrunner.commands import AsJson, Dsn, explain
from jobrunner.db import inspect
from jobrunner.db.connect import Target
from jobrunner.db.session import Session
from jobrunner.errors import JobrunnerError
from jobrunner.output import show
from jobrunner.settings import connect_error, resolve_dsn


def register(app: typer.Typer) -> None:
    """Add the subcommand to the application."""
    app.command()(doctor)


def doctor(
    dsn: Dsn = None,
    pooler: Annotated[bool, typer.Option("--pooler", help="--dsn leads to a transaction pooler.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at connection, schema, rights, upkeep and server; exit code 1 when something fails."""
    where = resolve_dsn(dsn, os.environ)
    session = Session(Target(where, pooler), "doctor")
    try:
        findings = list(examine(session, where, pooler=pooler))
    finally:
        session.close()
    show(["check", "state", "found", "remedy"], findings, as_json=as_json)
    failed = [finding.check for finding in findings if finding.state == FAIL]
    if failed:
        raise JobrunnerError(f"not in order: {', '.join(failed)}: see the remedies above")


def examine(session: Session, dsn: str, *, pooler: bool) -> Iterator[Finding]:
    """Make the findings, one after the other; ends where nothing more can be looked at."""
    try:
        conn = session.connection()
        before = datetime.now(UTC)
        login = session.run(inspect.login())
        after = datetime.now(UTC)
    except psycopg.Error as error:
        message, _, remedy = str(connect_error(error)).rpartition(": ")
        yield Finding("connection", FAIL, message, remedy)
        return
    yield Finding("connection", OK, f"{login.role} in database {login.database}")
    yield checks.server_version(login)
    yield checks.connection_path(login, conn.pgconn.backend_pid, pooler=pooler)
    yield checks.clock_skew(login.clock, before, after)
    version = checks.schema_version(session)
    yield version
    if version.state == FAIL:
        return
    yield checks.schema_files(dsn)
    for check, look in checks.CHECKS:
        yield from _looked(check, look, session)


def _looked(check: str, look: Look, session: Session) -> Iterator[Finding]:
    """Make the findings of one check; what the login may not see is a warning that says so."""
    try:
        yield from list(look(session))
    except psycopg.errors.InsufficientPrivilege as error:
        yield Finding(check, WARN, f"not looked at: {explain(error).split(' [', 1)[0]}", "log in as an mdm_monitor")
