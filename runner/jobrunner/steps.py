"""The steps of migrations/, read and applied by yoyo."""

from __future__ import annotations

import getpass
import glob
import os

from yoyo import read_migrations
from yoyo.backends.core.postgresql import PostgresqlPsycopgBackend
from yoyo.connections import DatabaseURI
from yoyo.exceptions import LockTimeout
from yoyo.migrations import MigrationList

from jobrunner.errors import SchemaError
from jobrunner.sqlfiles import data_dir


def known_steps() -> tuple[str, ...]:
    """Return the ids of this package's steps."""
    return tuple(item.id for item in _package_migrations())


def apply_steps(dsn: str, options: str) -> tuple[str, ...]:
    """Apply the pending steps, each in a transaction of its own, and return their ids."""
    _name_the_user()
    arguments = {"conninfo": dsn, "options": options, "schema": "mdm"}
    uri = DatabaseURI("postgresql+psycopg", None, None, None, None, None, arguments)
    backend = PostgresqlPsycopgBackend(uri, "_yoyo_migration")
    with backend:
        backend.init_database()
        # We hold the advisory lock: a row in yoyo_lock can only be that of a migrator that was killed (B90).
        backend.break_lock()
        pending = backend.to_apply(_package_migrations())
        try:
            with backend.lock(timeout=1):
                backend.apply_migrations_only(pending)
        except LockTimeout as error:
            raise SchemaError(
                "yoyo migrates this database at this moment: wait, and use `jobrunner migrate` only"
            ) from error
    return tuple(item.id for item in pending)


def _package_migrations() -> MigrationList:
    """Return the steps of this package, loaded: a broken one is an error before anything is done."""
    migrations = read_migrations(glob.escape(str(data_dir("migrations"))))
    for item in migrations:
        item.load()
    return migrations


def _name_the_user() -> None:
    """Give yoyo a user's name for its log: it fails in a container whose uid has none."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"uid-{os.getuid()}"
