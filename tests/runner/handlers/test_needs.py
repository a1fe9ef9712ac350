"""What a runner must have for the kinds of the package, told at its start (S3.3, design 3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from jobrunner.errors import ConnectError, UsageError
from jobrunner.handlers import HANDLERS
from jobrunner.handlers.needs import NEEDS, able
from jobs import Connection
from runnerkit import run

DDL = ("index_sync", "gin_backfill")


@pytest.mark.parametrize("kind", list(NEEDS))
def test_kind_that_is_named_is_refused_without_its_settings(kind: str) -> None:
    with pytest.raises(UsageError, match=f"kind {kind} cannot run here: {NEEDS[kind].variable} is not set"):
        able({kind: HANDLERS[kind]}, {}, named=True)


def test_kinds_that_are_not_named_are_left_out_without_their_settings() -> None:
    found = able({kind: HANDLERS[kind] for kind in ("reindex", *NEEDS)}, {}, named=False)
    assert list(found) == ["reindex"]


def test_handler_of_another_package_has_needs_of_its_own() -> None:
    mine = {"virus_scan": lambda job, ctx: None}
    assert able(mine, {}, named=True) == mine


@pytest.mark.parametrize("kind", DDL)
def test_ddl_login_with_the_grant_is_able(dsn: str, kind: str) -> None:
    environ = {"JOBRUNNER_DDL_DSN": make_conninfo(dsn, user="test_mdm_indexer")}
    assert list(able({kind: HANDLERS[kind]}, environ, named=True)) == [kind]


@pytest.mark.parametrize("named", [True, False])
def test_ddl_login_without_the_grant_is_refused_with_the_grant(dsn: str, named: bool) -> None:
    environ = {"JOBRUNNER_DDL_DSN": make_conninfo(dsn, user="test_mdm_worker")}
    with pytest.raises(UsageError, match="grant mdm_indexer to"):
        able({"index_sync": HANDLERS["index_sync"]}, environ, named=named)


def test_ddl_login_that_may_call_but_does_not_own_is_refused(conn: Connection, dsn: str) -> None:
    conn.execute("grant execute on function mdm.lock_index_builds() to mdm_monitor")
    try:
        with pytest.raises(UsageError, match=r"may not build indexes on mdm\.ddm_entity: Run: grant mdm_indexer"):
            able(
                {"index_sync": HANDLERS["index_sync"]},
                {"JOBRUNNER_DDL_DSN": make_conninfo(dsn, user="test_mdm_monitor")},
                named=True,
            )
    finally:
        conn.execute("revoke execute on function mdm.lock_index_builds() from mdm_monitor")


def test_ddl_server_that_is_not_there_is_a_connect_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectError):
        able({"index_sync": HANDLERS["index_sync"]}, {"JOBRUNNER_DDL_DSN": f"host={tmp_path} dbname=x"}, named=True)


def test_ddl_dsn_that_is_none_names_its_variable() -> None:
    with pytest.raises(UsageError, match="JOBRUNNER_DDL_DSN is not a connection string"):
        able({"index_sync": HANDLERS["index_sync"]}, {"JOBRUNNER_DDL_DSN": "nonsense ="}, named=True)


@pytest.mark.parametrize("name", ["LOCK_TIMEOUT", "STATEMENT_TIMEOUT", "WATCH"])
def test_ddl_limits_that_are_none_name_their_variable(dsn: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"JOBRUNNER_DDL_{name}_SECONDS is"):
        able(
            {"index_sync": HANDLERS["index_sync"]},
            {"JOBRUNNER_DDL_DSN": dsn, f"JOBRUNNER_DDL_{name}_SECONDS": "-1"},
            named=True,
        )


def test_scan_needs_a_storage_too(tmp_path: Path) -> None:
    clamd = {"JOBRUNNER_CLAMD": "127.0.0.1:3310"}
    with pytest.raises(UsageError, match="JOBRUNNER_STORAGE_DIR is not set"):
        able({"virus_scan": HANDLERS["virus_scan"]}, clamd, named=False)
    assert able({"virus_scan": HANDLERS["virus_scan"]}, {**clamd, "JOBRUNNER_STORAGE_DIR": str(tmp_path)}, named=True)


@pytest.mark.parametrize("user", [None, "test_mdm_worker"])
def test_command_refuses_in_one_line_with_exit_code_2(dsn: str, user: str | None) -> None:
    environ = {} if user is None else {"JOBRUNNER_DDL_DSN": make_conninfo(dsn, user=user)}
    code, out, err = run(make_conninfo(dsn, user="test_mdm_worker"), "--kinds", "index_sync", "--drain", **environ)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "grant mdm_indexer to" in err
