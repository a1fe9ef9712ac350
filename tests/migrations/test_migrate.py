"""jobrunner.schema.migrate on real databases: again, at once, killed, by a plain owner, and equal to psql's install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cluster import ROOT, PgServer, database, missing
from jobrunner import schema, steps
from jobrunner.devserver import Server
from jobrunner.errors import SchemaError
from jobrunner.sqlfiles import text_of
from races.sessions import background, result, sqlstate, wait_until_blocked
from runnerkit import eventually

MIGRATE = "import sys; from jobrunner.schema import migrate; migrate(sys.argv[1])"
# Stops in the middle of the step `tables`, in its transaction, and says so.
STOP_HALFWAY = """
import sys
from jobrunner import schema

real = schema._run_file

def run_file(conn, path):
    real(conn, path)
    if path == "tables/aa_job.sql":
        print("halfway", flush=True)
        conn.execute("select pg_sleep(300)")

schema._run_file = run_file
schema.migrate(sys.argv[1])
"""


def program(server: Server, name: str) -> Path:
    """A client program of the server under test."""
    path = server.bin / name
    if not path.exists():
        missing(name, f"{server.bin} has no {name}")
    return path


def dump(server: Server, dsn: str) -> str:
    """The structure of schema mdm with owners and rights, and the seed, as pg_dump tells it."""
    flags = ["--schema=mdm", "--exclude-table=mdm.*yoyo*"]
    parts = [[*flags, "--schema-only"], ["--data-only", "--table=mdm.aa_job_kind", "--table=mdm.aa_principal"]]
    texts = [
        subprocess.run(
            [program(server, "pg_dump"), "-d", dsn, *part], check=True, capture_output=True, text=True
        ).stdout
        for part in parts
    ]
    # the lines that pg_dump brackets a dump with carry a random word, the principal `unknown` a random id
    lines = [line for text in texts for line in text.splitlines() if "restrict " not in line]
    return re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>", "\n".join(lines))


def install(server: Server, dsn: str) -> None:
    """What a DBA does with psql alone."""
    done = subprocess.run(
        [program(server, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f", ROOT / "sql" / "install.sql"],
        capture_output=True,
        text=True,
        env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"},
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def rows(dsn: str, query: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query).fetchall()


def test_migrate_equals_install_with_psql(pg_server: PgServer, empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    with database(pg_server) as by_psql:
        install(pg_server.server, by_psql)
        expected = dump(pg_server.server, by_psql)
        assert "CREATE TABLE mdm.aa_job " in expected
        assert "email_send" in expected
        assert dump(pg_server.server, empty_dsn) == expected
        # psql again, then our own migrator over what psql installed
        install(pg_server.server, by_psql)
        assert dump(pg_server.server, by_psql) == expected
        schema.migrate(by_psql)
        assert schema.check(by_psql).current
        assert dump(pg_server.server, by_psql) == expected


def test_migrate_again_changes_nothing(pg_server: PgServer, empty_dsn: str) -> None:
    first = schema.migrate(empty_dsn)
    assert first.migrations == steps.known_steps()
    before = dump(pg_server.server, empty_dsn)
    again = schema.migrate(empty_dsn)
    assert again.current
    assert again.files == first.files > 20
    assert dump(pg_server.server, empty_dsn) == before


def test_migrate_keeps_what_is_in_the_tables(fresh_dsn: str) -> None:
    with psycopg.connect(fresh_dsn) as conn:
        job = conn.execute("select mdm.enqueue_job('cleanup_jobs')").fetchone()
        conn.execute("update mdm.aa_job_kind set max_attempts = 7 where job_kind = 'cleanup_jobs'")
    schema.migrate(fresh_dsn)
    assert rows(fresh_dsn, "select id from mdm.aa_job") == [job]
    assert rows(fresh_dsn, "select max_attempts from mdm.aa_job_kind where job_kind = 'cleanup_jobs'") == [(7,)]


def test_migrate_forgets_everything_when_the_schema_is_dropped(empty_dsn: str) -> None:
    schema.migrate(empty_dsn)
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("drop schema mdm cascade")
    assert len(schema.migrate(empty_dsn).migrations) == len(steps.known_steps())
    assert rows(empty_dsn, "select count(*) from mdm.aa_job") == [(0,)]


def test_b91_four_migrators_at_once_all_succeed(pg_server: PgServer) -> None:
    for _ in range(3):
        with database(pg_server) as dsn:
            children = [
                subprocess.Popen([sys.executable, "-c", MIGRATE, dsn], stderr=subprocess.PIPE, text=True)
                for _ in range(4)
            ]
            said = [child.communicate(timeout=180)[1] for child in children]
            assert said == [""] * 4
            assert [child.returncode for child in children] == [0] * 4
            assert schema.check(dsn).current
            assert rows(dsn, "select count(*) from mdm._yoyo_migration") == [(len(steps.known_steps()),)]


def test_b90_killed_migrator_leaves_a_lock_that_the_next_one_breaks(empty_dsn: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", STOP_HALFWAY, empty_dsn], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "halfway\n"
    child.kill()
    child.communicate()
    assert rows(empty_dsn, "select count(*) from mdm.yoyo_lock") == [(1,)]
    assert rows(empty_dsn, "select to_regclass('mdm.aa_job')") == [(None,)]
    assert schema.migrate(empty_dsn).migrations[0] == "0004_tables"
    assert rows(empty_dsn, "select count(*) from mdm.yoyo_lock") == [(0,)]
    assert schema.check(empty_dsn).current


def test_migrate_waits_for_another_migrator_and_then_says_so(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "LOCK_WAIT_SECONDS", 1)
    with psycopg.connect(empty_dsn) as other:
        other.execute("select pg_advisory_lock(%s)", (schema.bookkeeping.LOCK_KEY,))
        with pytest.raises(SchemaError, match="another migration has run for 1 s"):
            schema.migrate(empty_dsn)
    schema.migrate(empty_dsn)


def is_waited_for(conn: psycopg.Connection[Any]) -> bool:
    blocked = "select exists (select from pg_stat_activity a where %s = any (pg_blocking_pids(a.pid)))"
    return conn.execute(blocked, (conn.info.backend_pid,)).fetchone() == (True,)


def test_b91_install_with_psql_waits_for_a_migrator(pg_server: PgServer, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", (schema.bookkeeping.LOCK_KEY,))
        psql = background(install, pg_server.server, empty_dsn)
        eventually(lambda: is_waited_for(other))
        assert other.execute("select to_regnamespace('mdm')").fetchone() == (None,)
        other.execute("select pg_advisory_unlock_all()")
        result(psql)
        assert other.execute("select to_regclass('mdm.aa_job') is not null").fetchone() == (True,)
    schema.migrate(empty_dsn)  # psql holds the lock no more


def test_install_with_psql_stops_at_the_first_error(pg_server: PgServer, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("create schema mdm; create view mdm.aa_job_kind as select 1")
    command = [program(pg_server.server, "psql"), "-X", "-q", "-d", empty_dsn, "-f", ROOT / "sql" / "install.sql"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("ERROR")) == (3, 1)


def test_install_with_psql_does_not_take_a_newer_schema_back(pg_server: PgServer, fresh_dsn: str) -> None:
    newer = schema.SCHEMA_VERSION + 1
    function = f"create or replace function mdm.job_schema_version() returns int language sql as 'select {newer}'"
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        conn.execute(function.encode())
    before = dump(pg_server.server, fresh_dsn)
    command = [program(pg_server.server, "psql"), "-X", "-q", "-d", fresh_dsn, "-f", ROOT / "sql" / "install.sql"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert f"version {newer}, newer than this one, which is {schema.SCHEMA_VERSION}" in done.stderr
    assert dump(pg_server.server, fresh_dsn) == before


def test_migrate_that_meets_a_locked_table_gives_up_and_leaves_all_as_it_was(
    pg_server: PgServer, fresh_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "SESSION_OPTIONS", "-c lock_timeout=200ms")
    before = dump(pg_server.server, fresh_dsn)
    with psycopg.connect(fresh_dsn) as other:
        other.execute("lock mdm.v_job_dlq in access share mode")
        with pytest.raises(SchemaError, match="try again, nothing is half done"):
            schema.migrate(fresh_dsn)
    assert dump(pg_server.server, fresh_dsn) == before
    assert schema.migrate(fresh_dsn).current


@pytest.mark.parametrize(
    "change",
    [
        "create or replace function mdm.job_schema_version() returns int language sql as 'select 1000'",
        "insert into mdm._yoyo_migration values ('hash', '9999_later', now())",
    ],
)
def test_b93_migrate_of_an_older_package_changes_nothing(pg_server: PgServer, fresh_dsn: str, change: str) -> None:
    with psycopg.connect(fresh_dsn) as conn:
        conn.execute(change.encode())
        conn.execute("drop view mdm.v_job_dlq")
    before = dump(pg_server.server, fresh_dsn)
    for attempt in (schema.migrate, schema.check):
        with pytest.raises(SchemaError, match="upgrade mdm-jobs") as caught:
            attempt(fresh_dsn)
        assert caught.value.exit_code == 3
    assert dump(pg_server.server, fresh_dsn) == before


def test_b89_steps_one_at_a_time_into_a_platform_with_an_enum_of_its_own(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("create schema mdm; create type mdm.audit_action as enum ('login', 'job_done')")
    every = steps._package_migrations()
    for number in range(1, len(every) + 1):
        monkeypatch.setattr(steps, "_package_migrations", lambda n=number: steps.MigrationList(every[:n]))
        assert steps.apply_steps(empty_dsn, "") == (every[number - 1].id,)
    monkeypatch.undo()
    schema.migrate(empty_dsn)
    assert rows(empty_dsn, "select enum_first(null::mdm.audit_action)") == [("login",)]
    with psycopg.connect(empty_dsn) as conn:
        conn.execute("select mdm.enqueue_job('reindex')")
        assert conn.execute("select action::text from mdm.aa_audit_log").fetchall() == [("job_enqueued",)]


def plain_owner(server: Server, dbname: str) -> str:
    """A database whose owner may make roles and nothing more; PUBLIC has no rights on schema public (B64)."""
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as conn:
        if not conn.execute("select 1 from pg_roles where rolname = 'plain'").fetchone():
            conn.execute("create role plain login nosuperuser createrole")
        conn.execute(f"create database {dbname} owner plain".encode())
    with psycopg.connect(server.dsn(dbname), autocommit=True) as conn:
        conn.execute("revoke all on schema public from public")
    return make_conninfo(server.dsn(dbname), user="plain")


def test_b64_plain_owner_migrates_installs_and_works(own_server: Server) -> None:
    by_us = plain_owner(own_server, "by_us")
    by_psql = plain_owner(own_server, "by_psql")
    schema.migrate(by_us)
    assert schema.migrate(by_us).current
    install(own_server, by_psql)
    schema.migrate(by_psql)
    assert dump(own_server, by_psql) == dump(own_server, by_us)
    with psycopg.connect(by_us, autocommit=True) as conn:
        for role in ("producer", "worker"):
            conn.execute(f"create role {role} login in role mdm_{role}".encode())
    with psycopg.connect(make_conninfo(by_us, user="producer")) as conn:
        conn.execute("select mdm.enqueue_job('reindex')")
    with psycopg.connect(make_conninfo(by_us, user="worker")) as conn:
        claimed = conn.execute("select id, lease_no from mdm.claim_job('h/1/u', array['reindex'])").fetchall()
        conn.execute("select mdm.finish_job(%s, %s)", claimed[0])
        assert conn.execute("select status::text from mdm.get_job(%s)", claimed[0][:1]).fetchone() == ("done",)


def test_installers_of_two_databases_grant_the_same_role_at_once(own_server: Server) -> None:
    """Roles belong to the cluster: what the other database's installer has granted meanwhile is no error."""
    roles = text_of("roles.sql")
    first, second = (psycopg.connect(plain_owner(own_server, name), autocommit=True) for name in ("one", "two"))
    with first, second, psycopg.connect(own_server.dsn(), autocommit=True) as observer:
        for conn in (first, second):
            conn.execute("create schema mdm")
        first.execute(roles.encode())
        first.execute("revoke mdm_platform from mdm_indexer")
        first.execute("revoke mdm_owner, mdm_platform from plain")
        with first.transaction():
            first.execute(roles.encode())
            call = background(second.execute, roles.encode())
            wait_until_blocked(observer, second, call)
        assert sqlstate(call) is None
        for role in ("mdm_owner", "mdm_platform"):
            assert second.execute("select pg_has_role(%s, 'usage')", (role,)).fetchone() == (True,)
        assert observer.execute("select pg_has_role('mdm_indexer', 'mdm_platform', 'usage')").fetchone() == (True,)


def test_b64_second_installer_needs_one_grant_where_roles_have_an_admin(own_server: Server) -> None:
    schema.migrate(own_server.dsn())  # the superuser made the roles
    dsn = plain_owner(own_server, "second")
    with psycopg.connect(own_server.dsn(), autocommit=True) as conn:
        if conn.info.server_version >= 160000:
            with pytest.raises(SchemaError, match="grant mdm_owner, mdm_platform to plain") as caught:
                schema.migrate(dsn)
            assert "\n" not in str(caught.value)
            conn.execute("grant mdm_owner, mdm_platform to plain")
    schema.migrate(dsn)
    assert schema.check(dsn).current
    # and whoever may act as the owner can go on where the first one stopped
    with psycopg.connect(own_server.dsn(), autocommit=True) as conn:
        conn.execute("grant create on database mdm to plain")
    schema.migrate(make_conninfo(own_server.dsn(), user="plain"))
