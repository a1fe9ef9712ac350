"""Where the database is: the option, the environment, and what to say when it cannot be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobrunner.errors import ConnectError, UsageError

# The variables of libpq that say where to go; the others (PGPASSWORD, PGSSLMODE ...) libpq reads by itself.
PG_VARIABLES: Final = {
    "PGSERVICE": "service",
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGDATABASE": "dbname",
    "PGUSER": "user",
}
# What the server or libpq says (in English; other languages get the message as it is) -> the remedy.
REMEDIES: Final = (
    ("password authentication failed", "check the password in the DSN, PGPASSWORD or ~/.pgpass"),
    ("no password supplied", "give a password in the DSN, PGPASSWORD or ~/.pgpass"),
    ("does not exist", "create it first, or correct the DSN"),
    ("no pg_hba.conf entry", "ask the server's administrator to let this user in"),
    ("too many clients", "raise max_connections or lower --concurrency"),
    ("could not translate host name", "correct the host in the DSN"),
    ("definition of service", "add it to ~/.pg_service.conf, or correct PGSERVICE or service= in the DSN"),
    ("failed to resolve host", "correct the host in the DSN"),
)
NOT_REACHED: Final = "is the server running, and are host and port right?"


def resolve_dsn(option: str | None, environ: Mapping[str, str]) -> str:
    """Return the connection string: --dsn, else JOBRUNNER_DSN, else the PG* variables.

    Raises UsageError when none is given or when the string cannot be parsed; the text of a DSN is
    never repeated, it may hold a password.
    """
    if option is not None:
        return checked_dsn(option, "--dsn")
    if environ.get("JOBRUNNER_DSN"):
        return checked_dsn(environ["JOBRUNNER_DSN"], "JOBRUNNER_DSN")
    found = {key: environ[name] for name, key in PG_VARIABLES.items() if environ.get(name)}
    if not found:
        raise UsageError("no database given: use --dsn, or set JOBRUNNER_DSN or PGHOST/PGDATABASE")
    return make_conninfo(**found)


def checked_dsn(dsn: str, source: str) -> str:
    """Return the DSN when libpq can parse it; raise UsageError otherwise."""
    remedy = "use postgresql://user@host/database or 'host=... dbname=...'"
    if not dsn.strip():
        raise UsageError(f"{source} is empty: {remedy}")
    try:
        conninfo_to_dict(dsn)
    except psycopg.Error:
        raise UsageError(f"{source} is not a connection string: {remedy}") from None
    return dsn


def connect_error(error: psycopg.Error) -> ConnectError:
    """Turn a failed connection into a ConnectError: one line, with the remedy and without the password."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[-1] if len(lines) > 1 and lines[-1].startswith("connection to") else lines[0]
    message = message.removeprefix("connection failed: ")
    remedy = next((text for mark, text in REMEDIES if mark in message), NOT_REACHED)
    return ConnectError(f"cannot connect: {message}: {remedy}")
