"""plpgsql_check finds nothing in any PL/pgSQL function (the extension comes with Debian's server)."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest

from cluster import PgServer, missing, running_server
from jobrunner import schema

FINDINGS: LiteralString = """
    select f.oid::regprocedure::text, c.lineno, c.level, c.message, c.detail, c.hint
    from pg_proc f
    join pg_language l on l.oid = f.prolang and l.lanname = 'plpgsql'
    left join pg_trigger t on t.tgfoid = f.oid
    cross join lateral plpgsql_check_function_tb(
      f.oid, coalesce(t.tgrelid, 0), fatal_errors => false, extra_warnings => true, security_warnings => true,
      performance_warnings => false) c
    where f.pronamespace = 'mdm'::regnamespace
    order by 1, 2
"""


CRON = {
    "shared_preload_libraries": "pg_cron",
    "cron.database_name": "mdm",
    "cron.use_background_workers": "on",
    "cron.launch_active_jobs": "off",
}


@pytest.fixture(scope="module")
def extensions(pg_server: PgServer) -> set[str]:
    """The extensions that come with the server under test."""
    with psycopg.connect(pg_server.dsn("postgres")) as conn:
        return {name for (name,) in conn.execute("select name from pg_available_extensions")}


def test_plpgsql_check_finds_nothing(extensions: set[str]) -> None:
    if "plpgsql_check" not in extensions:
        missing("plpgsql_check", "this server has no such extension")
    cron = "pg_cron" in extensions
    with running_server(**CRON if cron else {}) as server:
        schema.migrate(server.dsn())
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("create extension plpgsql_check")
            if cron:
                conn.execute("create extension pg_cron")
            # without pg_cron the functions that schedule name a schema that is not there
            found = [row for row in conn.execute(FINDINGS) if cron or "schedule_cleanup" not in row[0]]
    assert found == []
