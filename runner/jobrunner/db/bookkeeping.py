"""What the migrator asks of the database: its lock, the installed version, what was loaded last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

Connection = psycopg.Connection[Any]

LOCK_KEY: Final = 0x6D646D6A6F6273  # "mdmjobs"
YOYO_TABLES: Final = ("_yoyo_log", "_yoyo_migration", "_yoyo_version", "yoyo_lock")


def take_lock(conn: Connection, timeout_seconds: int) -> bool:
    """Take the migrator's advisory lock for the life of this session; False when another one keeps it.

    It dies with the process that holds it, unlike the row that yoyo writes (B90).
    """
    before = _scalar(conn, "select current_setting('lock_timeout')")
    conn.execute("select set_config('lock_timeout', %s, false)", (f"{timeout_seconds}s",))
    try:
        conn.execute("select pg_advisory_lock(%s)", (LOCK_KEY,))
    except psycopg.errors.LockNotAvailable:
        return False
    conn.execute("select set_config('lock_timeout', %s, false)", (before,))
    return True


def job_schema_version(conn: Connection) -> int | None:
    """Return the version of the installed schema (mdm.job_schema_version), None when there is none."""
    if _scalar(conn, "select to_regprocedure('mdm.job_schema_version()')") is None:
        return None
    return int(_scalar(conn, "select mdm.job_schema_version()"))


def applied_migrations(conn: Connection) -> frozenset[str]:
    """Return the ids of the migrations that this database has seen."""
    if _scalar(conn, "select to_regclass('mdm._yoyo_migration')") is None:
        return frozenset()
    return frozenset(row[0] for row in conn.execute("select migration_id from mdm._yoyo_migration"))


def loaded_files(conn: Connection) -> dict[str, str]:
    """Return path -> sha256 of the files of always.sql as they were loaded last."""
    if _scalar(conn, "select to_regclass('mdm.aa_schema_object')") is None:
        return {}
    return dict(conn.execute("select path, sha256 from mdm.aa_schema_object").fetchall())


def save_loaded_files(conn: Connection, hashes: Mapping[str, str]) -> None:
    """Remember what was loaded: rows of files that did not change stay as they are, rows of gone files go."""
    conn.execute("delete from mdm.aa_schema_object where path <> all(%s)", (list(hashes),))
    conn.cursor().executemany(
        "insert into mdm.aa_schema_object as o (path, sha256) values (%s, %s)"
        " on conflict (path) do update set sha256 = excluded.sha256, loaded_at = clock_timestamp()"
        " where o.sha256 <> excluded.sha256",
        list(hashes.items()),
    )


def hand_over_bookkeeping(conn: Connection) -> None:
    """Give yoyo's tables to mdm_owner, so that every installer who may act as mdm_owner can use them."""
    for name in YOYO_TABLES:
        owner = _scalar(
            conn,
            "select c.relowner::regrole::text from pg_catalog.pg_class c where c.oid = to_regclass(%s)",
            (f"mdm.{name}",),
        )
        if owner not in (None, "mdm_owner"):
            conn.execute(sql.SQL("alter table {} owner to mdm_owner").format(sql.Identifier("mdm", name)))


def _scalar(conn: Connection, query: LiteralString, parameters: tuple[Any, ...] = ()) -> Any:
    """Return the single value that a query gives."""
    row = conn.execute(query, parameters).fetchone()
    return None if row is None else row[0]
