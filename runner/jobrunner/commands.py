"""The subcommands migrate, enqueue, status, kinds, and what all subcommands share."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn
from uuid import UUID

import psycopg
import typer

from jobrunner import logs, schema
from jobrunner.db.connect import Target
from jobrunner.db.operator import Health, job_health
from jobrunner.db.process import job_kind_settings
from jobrunner.db.producer import enqueue_job, job_counts
from jobrunner.db.session import Session
from jobrunner.errors import JobrunnerError, SchemaError, UsageError
from jobrunner.handlers.registry import load_handlers
from jobrunner.output import show, show_json
from jobrunner.settings import resolve_dsn

INT_MAX: Final = 2**31 - 1
PAYLOAD_BYTES: Final = 32 << 20  # of text; the database's own limit is on the stored form
REMEDIES: Final = {
    "22P05": "take \\u0000 out of the payload: jsonb cannot hold it",
    "22P02": "correct the value; in JSON, \\ud800 to \\udfff stand in pairs only",
    "22003": "use a smaller number",
    "42501": "have an administrator grant a role such as mdm_worker",
    "25006": "connect to the primary: this server is read-only",
}


class OnConflict(Enum):
    """What enqueue does when the key exists (D6)."""

    IGNORE = "ignore"
    UPDATE = "update"


Modules = Annotated[
    list[str] | None, typer.Option(help="Module with a dict HANDLERS of job kind to function: repeated or a,b.")
]
Dsn = Annotated[str | None, typer.Option(help="Database. Default: JOBRUNNER_DSN, else the PG* variables.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def register(app: typer.Typer) -> None:
    """Add the subcommands to the application."""
    for command in (migrate, enqueue, status, kinds):
        app.command()(command)


def migrate(
    dsn: Dsn = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; say what is pending.")] = False,
    as_json: AsJson = False,
) -> None:
    """Install schema mdm, or bring it up to date."""
    where = resolve_dsn(dsn, os.environ)
    report = schema.check(where) if check else schema.migrate(where)
    found = f"{len(report.migrations)} migrations, {len(report.changed)} changed files"
    if as_json:
        show_json({"version": schema.SCHEMA_VERSION, "migrations": report.migrations, "changed": report.changed})
    elif report.current:
        typer.echo(f"schema mdm is up to date (version {schema.SCHEMA_VERSION}, {report.files} files)")
    elif not check:
        typer.echo(f"schema mdm is at version {schema.SCHEMA_VERSION}: applied {found}")
    if check and not report.current:
        raise SchemaError(f"pending: {found}: run `jobrunner migrate`")


def enqueue(
    kind: str,
    payload: Annotated[str, typer.Option(help="JSON object; @FILE reads a file, - reads stdin.")] = "{}",
    tenant: Annotated[str | None, typer.Option(help="Tenant id. Default: a job of the platform.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key.")] = None,
    on_conflict: Annotated[OnConflict, typer.Option(help="What to do when the key exists.")] = OnConflict.IGNORE,
    priority: Annotated[int | None, typer.Option(min=-INT_MAX - 1, max=INT_MAX, help="Smaller goes first.")] = None,
    at: Annotated[str | None, typer.Option(help="Not before: ISO 8601 with an offset.")] = None,
    max_attempts: Annotated[int | None, typer.Option(min=1, max=INT_MAX, help="Attempts before it is dead.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a job and print its id."""
    call = enqueue_job(
        job_kind=kind,
        payload=payload_text(payload),
        tenant_id=tenant_id(tenant) if tenant is not None else None,
        idempotency_key=key,
        on_conflict=on_conflict.value,
        priority=priority,
        available_at=instant(at) if at is not None else None,
        max_attempts=max_attempts,
    )
    with open_session(dsn, "mdm_producer") as session:
        job_id = session.run(call)
    if as_json:
        show_json({"job_id": job_id})
        return
    typer.echo(job_id)


def status(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show how many jobs of each kind stand where, and what is wrong."""
    head = ["kind", "due", "later", "running", "done", "failed", "dlq", "state"]
    with open_session(dsn, "mdm_monitor") as session:
        counts = session.run(job_counts())
        health = _health(session)
    if as_json:
        kinds = [dict(zip(head, count, strict=True)) for count in counts]
        show_json({"kinds": kinds, "health": None if health is None else [line._asdict() for line in health]})
        return
    show(head, counts)
    warnings = [(line.subject, line.item, line.value, line.warning) for line in health or () if line.warning]
    if sys.stdout.isatty():
        typer.echo("")
    if warnings:
        show(["subject", "item", "value", "warning"], warnings)
    else:
        typer.echo(
            "health: not shown, the login is no member of mdm_monitor" if health is None else "health: no warnings"
        )


def _health(session: Session) -> list[Health] | None:
    """The lines of v_job_health; None for a login that may not see them."""
    try:
        return session.run(job_health())
    except psycopg.errors.InsufficientPrivilege:
        return None


def kinds(
    handlers: Modules = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Show the kinds that are registered or have a handler, and their settings."""
    known = load_handlers(names(handlers, "--handlers"))
    with open_session(dsn, "mdm_worker") as session:
        states = {count.job_kind: count.state for count in session.run(job_counts())}
        every = sorted(states.keys() | known.keys())
        settings = {each.job_kind: each for each in session.run(job_kind_settings(kinds=every))}
    rows = []
    for name in every:
        each = settings.get(name)
        ttl = f"{each.stale_ttl_seconds:g} s" if each else "-"
        timeout = f"{each.handler_timeout_seconds:g} s" if each and each.handler_timeout_seconds else "-"
        rows.append((name, _place(known.get(name)), states.get(name, "not registered"), ttl, timeout))
    show(["kind", "handler", "state", "stale TTL", "timeout"], rows, as_json=as_json)


def names(values: list[str] | None, option: str) -> list[str]:
    """Split a,b; raises UsageError for an option that was given and names nothing."""
    found = [name.strip() for value in values or [] for name in value.split(",") if name.strip()]
    if values and not found:
        raise UsageError(f"{option} names nothing: leave it out, or name one")
    return found


def payload_text(option: str) -> str:
    """Return the payload as JSON text; the numbers in it stay as they were written. Raises UsageError."""
    text = _read(option)
    try:
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except ValueError as error:
        raise UsageError(f"the payload is not JSON: {error}: quote it for the shell, or use --payload @FILE") from None
    except RecursionError:
        raise UsageError("the payload is nested too deeply: make it flatter") from None
    if not isinstance(value, dict):
        raise UsageError('the payload is not a JSON object: write it as \'{"name": "value"}\'')
    return text


def tenant_id(text: str) -> UUID:
    """Parse a tenant id; raises UsageError."""
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(f"{text!r} is no tenant id: use the id (a UUID) of a tenant") from None


def instant(text: str) -> datetime:
    """Parse an instant; raises UsageError, also when it has no offset (B24)."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time: write it as 2030-01-31T12:00:00+01:00") from None
    if value.utcoffset() is None:
        raise UsageError(f"{text!r} has no offset from UTC: write {value.isoformat()}+00:00, or the offset you mean")
    return value


def explain(error: psycopg.Error, advice: str | None = None) -> str:
    """What the database said, and the remedy: its own hint, else the advice, else what is known of the SQLSTATE."""
    message = error.diag.message_primary or str(error) or type(error).__name__
    remedy = error.diag.message_hint or advice or REMEDIES.get(error.sqlstate or "")
    code = f" [{error.sqlstate}]" if error.sqlstate else ""
    return f"{message}{code}: {remedy}" if remedy else f"{message}{code}"


@contextmanager
def open_session(dsn: str | None, role: str) -> Iterator[Session]:
    """Open a session for one command, on a schema that fits; a login that may not do it is told which role may."""
    logs.setup("text", logging.WARNING)
    session = Session(Target(resolve_dsn(dsn, os.environ)), "command")
    try:
        schema.require_schema(session.connection())
        yield session
    except psycopg.errors.InsufficientPrivilege as error:
        raise JobrunnerError(explain(error, f"have an administrator grant {role} to this login")) from error
    finally:
        session.close()


def _read(option: str) -> str:
    """Read the payload from where the option says, up to the limit."""
    try:
        if option == "-":
            data = sys.stdin.buffer.read(PAYLOAD_BYTES + 1)
        elif option.startswith("@"):
            with Path(option[1:]).open("rb") as file:
                data = file.read(PAYLOAD_BYTES + 1)
        else:
            data = os.fsencode(option)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the payload cannot be read: {error}: name a readable file of UTF-8 text") from None
    if len(data) > PAYLOAD_BYTES:
        raise UsageError(f"the payload has more than {PAYLOAD_BYTES >> 20} MiB: store the data and pass a reference")
    return text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _place(handler: Any) -> str:
    """Where a handler's function stands."""
    return f"{handler.__module__}.{getattr(handler, '__qualname__', handler)}" if handler is not None else "-"
