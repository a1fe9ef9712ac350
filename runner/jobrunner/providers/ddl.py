"""The DDL connection of index_sync and gin_backfill: its own login (mdm_indexer), its own limits, autocommit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import psycopg

from jobrunner.db.call import read, send
from jobrunner.db.connect import Target, connect
from jobrunner.db.index import limit_session, lock_index_builds, run_watched, unlock_index_builds
from jobrunner.errors import NOT_ALLOWED, UsageError
from jobrunner.providers.environ import number, required
from jobrunner.settings import connect_error, resolve_dsn

DSN: Final = "JOBRUNNER_DDL_DSN"
GRANT: Final = "a login that was granted mdm_indexer (grant mdm_indexer to <login>;), on a direct connection"

# Waiting holds up nobody: a concurrent build queues behind writers without stopping those that come after it.
LOCK_TIMEOUT_SECONDS: Final = 600.0
STATEMENT_TIMEOUT_SECONDS: Final = 14_400.0
# How often a build under way is asked whether it is still wanted.
WATCH_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class DdlSettings:
    """Where the DDL goes; from the variables JOBRUNNER_DDL_*."""

    dsn: str = field(repr=False)
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS
    statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS
    watch_seconds: float = WATCH_SECONDS

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> DdlSettings:
        """Read the settings; raises UsageError that names the variable which is missing or wrong, and the grant."""
        dsn = required(environ, DSN, GRANT)
        try:
            resolve_dsn(dsn, {})
        except UsageError as error:
            raise UsageError(str(error).replace("--dsn", DSN)) from None
        return cls(
            dsn,
            number(environ, "JOBRUNNER_DDL_LOCK_TIMEOUT_SECONDS", LOCK_TIMEOUT_SECONDS),
            number(environ, "JOBRUNNER_DDL_STATEMENT_TIMEOUT_SECONDS", STATEMENT_TIMEOUT_SECONDS),
            number(environ, "JOBRUNNER_DDL_WATCH_SECONDS", WATCH_SECONDS),
        )


class Ddl(Protocol):
    """Runs DDL, one statement after the other, each in a transaction of its own."""

    def lock(self) -> bool:
        """Take the lock of index builds until the session ends; False when another session has it."""

    def run(self, statement: str, watch: Callable[[], None]) -> None:
        """Run a statement; `watch` is called while it runs, and what it raises ends the statement."""


class DdlSession:
    """An open DDL connection (Ddl)."""

    def __init__(self, conn: psycopg.Connection[Any], watch_seconds: float) -> None:
        self._conn = conn
        self._watch_seconds = watch_seconds

    def lock(self) -> bool:
        """Take the lock, or not; raises UsageError when the login may not build indexes (MJ007)."""
        call = lock_index_builds()
        try:
            return read(send(self._conn, call), call)
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(f"the login of {DSN} may not build indexes: set it to {GRANT}") from error
        except psycopg.Error as error:
            if error.sqlstate != NOT_ALLOWED:
                raise
            raise UsageError(f"{DSN}: {error.diag.message_primary}: {error.diag.message_hint}") from error

    def run(self, statement: str, watch: Callable[[], None]) -> None:
        """Run a statement under watch; raises psycopg.Error, or what `watch` raises."""
        run_watched(self._conn, statement, watch, self._watch_seconds)


@contextmanager
def ddl_session(settings: DdlSettings) -> Iterator[DdlSession]:
    """Open a DDL connection for the time of a with block, which lets go of the lock. Raises ConnectError."""
    try:
        conn = connect(Target(settings.dsn), "ddl")
    except psycopg.Error as error:
        raise connect_error(error) from error
    with conn:
        call = limit_session(
            lock_timeout_seconds=settings.lock_timeout_seconds,
            statement_timeout_seconds=settings.statement_timeout_seconds,
        )
        send(conn, call)
        try:
            yield DdlSession(conn, settings.watch_seconds)
        finally:
            with suppress(psycopg.Error):
                send(conn, unlock_index_builds())


def check_ddl(environ: Mapping[str, str]) -> None:
    """Raise UsageError or ConnectError, with the grant to give, unless this runner can build indexes."""
    with ddl_session(DdlSettings.from_environ(environ)) as session:
        session.lock()
