"""Installs and upgrades schema mdm: the lists of sql/, yoyo's steps, and the answer to "does it fit?".

Two kinds of files: what has state (once.sql) is applied part by part by the steps of migrations/, each once;
what has none (always.sql: functions, views, grants) is loaded by every migrate, in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from jobrunner.db import bookkeeping
from jobrunner.errors import SchemaError
from jobrunner.settings import connect_error
from jobrunner.sqlfiles import always_hashes, text_of
from jobrunner.sqlfiles import data_dir as data_dir
from jobrunner.sqlfiles import listed_files as listed_files

Connection = psycopg.Connection[Any]
logger = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 1  # what mdm.job_schema_version() of this package says
LOCK_WAIT_SECONDS: Final = 120  # how long to wait for another migrator
# A migration waits for the users of a table only so long, and holds up what queues behind it no longer. What a killed
# migrator left running ends within a second, so that the next one need not wait for its locks (B90).
SESSION_OPTIONS: Final = (
    "-c lock_timeout=10s -c statement_timeout=30min -c client_connection_check_interval=1s"
    r" -c default_transaction_isolation=read\ committed"
)


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What migrate did, or what check found to do."""

    migrations: tuple[str, ...]  # ids of yoyo steps
    changed: tuple[str, ...]  # files of always.sql whose text differs from what was loaded last
    files: int  # files in always.sql

    @property
    def current(self) -> bool:
        """True when the database is as this package wants it."""
        return not self.migrations and not self.changed


def apply_once(part: str) -> Callable[[Connection], None]:
    """Return a yoyo step that applies one part of once.sql, file by file, in the step's transaction."""

    def apply(conn: Connection) -> None:
        paths = listed_files("once.sql", part)
        if not paths:
            raise SchemaError(f"sql/once.sql has no part [{part}]")
        for path in paths:
            _run_file(conn, path)

    return apply


def migrate(dsn: str) -> MigrationReport:
    """Install or upgrade schema mdm; harmless when it is current or when several do it at once.

    Raises ConnectError, or SchemaError when the schema is newer than this package or a file fails: then
    nothing of that step is left behind, and the next migrate goes on from there.
    """
    with _session(dsn) as conn:
        if not bookkeeping.take_lock(conn, LOCK_WAIT_SECONDS):
            raise SchemaError(f"another migration has run for {LOCK_WAIT_SECONDS} s: wait for it, or end it")
        _refuse_newer(conn)
        # yoyo keeps its tables in mdm, so that dropping the schema forgets everything about it.
        _run_file(conn, "schema.sql")
        applied = _steps().apply_steps(dsn, _options(dsn))
        bookkeeping.hand_over_bookkeeping(conn)
        return MigrationReport(applied, *_load_always(conn))


def check(dsn: str) -> MigrationReport:
    """Return what migrate would do, without doing it; raises as migrate does."""
    with _session(dsn) as conn:
        conn.read_only = True
        _refuse_newer(conn)
        applied = bookkeeping.applied_migrations(conn)
        pending = tuple(step for step in _steps().known_steps() if step not in applied)
        hashes = always_hashes()
        return MigrationReport(pending, _changed(conn, hashes), len(hashes))


def require_schema(conn: Connection) -> None:
    """Raise SchemaError unless the installed schema is the one that this package speaks to (B93)."""
    try:
        version = bookkeeping.job_schema_version(conn)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaError(f"{_first_line(error)}: have an administrator grant a role such as mdm_worker") from error
    if version is None:
        raise SchemaError("this database has no schema mdm: run `jobrunner migrate`")
    if version < SCHEMA_VERSION:
        raise SchemaError(f"schema mdm is version {version}, older than {SCHEMA_VERSION}: run `jobrunner migrate`")
    if version > SCHEMA_VERSION:
        raise SchemaError(_newer(version))


def _newer(version: int) -> str:
    return f"schema mdm is version {version}, newer than this package ({SCHEMA_VERSION}): upgrade mdm-jobs"


def _refuse_other_encoding(conn: Connection) -> None:
    """Raise SchemaError before psycopg, which takes texts of SQL_ASCII for bytes, stumbles over something else."""
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"database {conn.info.dbname} has encoding {encoding}, mdm jobs needs UTF8: make another with"
            " create database ... encoding 'UTF8' template template0"
        )


def _refuse_newer(conn: Connection) -> None:
    """Raise SchemaError when a later package has been here: an old one must not take its work back."""
    version = bookkeeping.job_schema_version(conn)
    if version is not None and version > SCHEMA_VERSION:
        raise SchemaError(_newer(version))
    unknown = bookkeeping.applied_migrations(conn) - set(_steps().known_steps())
    if unknown:
        raise SchemaError(
            f"schema mdm has migrations that this package does not know ({min(unknown)}): upgrade mdm-jobs"
        )


def _steps() -> ModuleType:
    """Load what only a migrator needs: yoyo would take 3 MB of every worker."""
    from jobrunner import steps

    return steps


@contextmanager
def _session(dsn: str) -> Iterator[Connection]:
    """Open the migrator's own connection; what the server refuses becomes one line with a remedy."""
    try:
        conn = psycopg.connect(dsn, autocommit=True, options=_options(dsn))
    except psycopg.Error as error:
        raise connect_error(error) from error
    try:
        _refuse_other_encoding(conn)
        yield conn
    except psycopg.Error as error:
        raise SchemaError(_explain(error)) from error
    finally:
        conn.close()


def _options(dsn: str) -> str:
    """Return the session's settings: those of the DSN, then ours."""
    return f"{conninfo_to_dict(dsn).get('options') or ''} {SESSION_OPTIONS}".strip()


def _load_always(conn: Connection) -> tuple[tuple[str, ...], int]:
    """Load every file of always.sql in one transaction; return the changed ones and the number of files."""
    hashes = always_hashes()
    with conn.transaction():
        changed = _changed(conn, hashes)
        for path in listed_files("always.sql"):
            _run_file(conn, path)
        bookkeeping.save_loaded_files(conn, hashes)
    return changed, len(hashes)


def _changed(conn: Connection, hashes: dict[str, str]) -> tuple[str, ...]:
    """Return the files that are new, other or gone since they were loaded."""
    before = bookkeeping.loaded_files(conn)
    return tuple(sorted(path for path in hashes.keys() | before.keys() if hashes.get(path) != before.get(path)))


def _run_file(conn: Connection, path: str) -> None:
    """Execute one file of sql/ whole; its warnings go to the log, its error names the file."""

    def tell(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            logger.warning("sql/%s: %s (%s)", path, diagnostic.message_primary, diagnostic.message_hint or "")

    conn.add_notice_handler(tell)
    try:
        conn.execute(cast(Any, text_of(path)))
    except psycopg.Error as error:
        raise SchemaError(f"sql/{path}: {_explain(error)}") from error
    finally:
        conn.remove_notice_handler(tell)


def _explain(error: psycopg.Error) -> str:
    """Return the server's message and its hint on one line."""
    hint = error.diag.message_hint
    if isinstance(error, psycopg.errors.LockNotAvailable):
        hint = "a session keeps the table for more than 10 s: try again, nothing is half done"
    elif isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = hint or "log in as a superuser, or as the owner of the database with CREATEROLE"
    elif isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        hint = "connect to the primary, as a login that may write"
    return f"{_first_line(error)}: {hint}" if hint else _first_line(error)


def _first_line(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().split("\n", 1)[0] or type(error).__name__
