"""jobrunner.schema: the lists of sql/, and what it says about a schema that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from jobrunner import schema, sqlfiles
from jobrunner.errors import ConnectError, SchemaError


def test_listed_files_of_a_part_are_those_between_its_heading_and_the_next() -> None:
    every = schema.listed_files("once.sql")
    types = schema.listed_files("once.sql", "types")
    assert "types/job_status.sql" in types
    assert not any(path.startswith("tables/") for path in types)
    start = every.index(types[0], every.index("roles.sql"))
    assert every[start : start + len(types)] == types


def test_listed_files_refuses_a_line_that_psql_would_take_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "once.sql").write_text("-- [types]\n\\ir a.sql\nselect 1;\n")
    monkeypatch.setattr(sqlfiles, "data_dir", lambda name: tmp_path)
    with pytest.raises(SchemaError, match=r"once\.sql:3 "):
        schema.listed_files("once.sql")


def test_apply_once_of_an_unknown_part_is_an_error(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(SchemaError, match=r"no part \[nowhere\]"):
        schema.apply_once("nowhere")(conn)


def test_data_dir_of_something_that_the_package_lacks_is_an_error() -> None:
    with pytest.raises(SchemaError, match="no nothing/ directory"):
        schema.data_dir("nothing")


def test_schema_version_is_that_of_the_installed_function(conn: psycopg.Connection[Any]) -> None:
    assert conn.execute("select mdm.job_schema_version()").fetchone() == (schema.SCHEMA_VERSION,)
    schema.require_schema(conn)


def test_require_schema_names_migrate_where_there_is_none(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn, pytest.raises(SchemaError, match="run `jobrunner migrate`"):
        schema.require_schema(conn)


@pytest.mark.parametrize(("change", "remedy"), [(1, "upgrade mdm-jobs"), (-1, "run `jobrunner migrate`")])
def test_b93_require_schema_refuses_another_version(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, change: int, remedy: str
) -> None:
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION - change)
    with pytest.raises(SchemaError, match=remedy):
        schema.require_schema(conn)


def test_check_finds_nothing_after_migrate_and_everything_before(dsn: str, empty_dsn: str) -> None:
    assert schema.check(dsn).current
    before = schema.check(empty_dsn)
    assert before.migrations[0] == "0001_schema"
    assert len(before.changed) == before.files
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regnamespace('mdm')").fetchone() == (None,)


def test_migrate_reports_and_reloads_a_changed_file(fresh_dsn: str) -> None:
    path = "functions/job_schema_version.sql"
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        conn.execute("update mdm.aa_schema_object set sha256 = 'another' where path = %s", (path,))
    assert schema.check(fresh_dsn).changed == (path,)
    assert schema.migrate(fresh_dsn).changed == (path,)
    assert schema.check(fresh_dsn).current


def test_migrate_of_a_missing_database_names_it(dsn: str) -> None:
    missing = dsn.replace("/mdm_", "/nowhere_")
    with pytest.raises(ConnectError, match=r'database "nowhere_\d+" does not exist: create it first'):
        schema.migrate(missing)


def test_migrate_without_a_server_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="is the server running") as caught:
        schema.migrate(f"host={tmp_path} dbname=mdm")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_migrate_of_another_encoding_names_the_remedy(empty_dsn: str, encoding: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(f"create database other_encoding encoding '{encoding}' locale 'C' template template0".encode())
        try:
            with pytest.raises(SchemaError, match=f"encoding {encoding}.*encoding 'UTF8' template template0"):
                schema.migrate(make_conninfo(empty_dsn, dbname="other_encoding"))
        finally:
            conn.execute("drop database other_encoding")


def test_migrate_of_a_server_that_may_not_write_names_the_remedy(empty_dsn: str) -> None:
    with pytest.raises(SchemaError, match="connect to the primary"):
        schema.migrate(make_conninfo(empty_dsn, options="-c default_transaction_read_only=on"))


def test_migrate_by_a_stranger_says_what_is_not_allowed(connect: Any, fresh_dsn: str) -> None:
    stranger = psycopg.conninfo.make_conninfo(fresh_dsn, user="test_mdm_producer")
    with pytest.raises(SchemaError, match="permission denied"):
        schema.migrate(stranger)


def test_migrate_error_names_the_file_and_leaves_nothing(
    empty_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlfiles.data_dir

    def broken(name: str) -> Path:
        return tmp_path if name == "sql" else real(name)

    for path in real("sql").rglob("*.sql"):
        target = tmp_path / path.relative_to(real("sql"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    with (tmp_path / "always.sql").open("a") as always:
        always.write("\\ir functions/broken.sql\n")
    (tmp_path / "functions" / "broken.sql").write_text("create function mdm.broken() returns int as $$ nonsense $$;")
    monkeypatch.setattr(sqlfiles, "data_dir", broken)
    with pytest.raises(SchemaError, match=r"sql/functions/broken\.sql: "):
        schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select to_regprocedure('mdm.job_schema_version()')").fetchone() == (None,)
    monkeypatch.undo()
    schema.migrate(empty_dsn)
    assert schema.check(empty_dsn).current
