"""schedule_cleanup and unschedule_cleanup with the real pg_cron: a tick recovers, cleans and trims (S13.4, D17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jobrunner import devserver
from jobrunner.devserver import Server
from jobs import age, call, enqueue, make_job, refused, rows, status, value
from runnerkit import eventually
from sqlcoverage import sql_coverage

Connection = psycopg.Connection[Any]

ENTRIES = ["mdm_cleanup", "mdm_recover", "mdm_trim_cron"]


def scheduled(conn: Connection) -> list[tuple[str, str]]:
    """Return the names and owners of what is scheduled."""
    return [
        (row["jobname"], row["username"])
        for row in rows(conn, "select jobname, username from cron.job order by jobname, username")
    ]


def restart(server: Server) -> None:
    """Restart the server as it is configured."""
    sql_coverage.add(server.dsn("mdm"))  # it forgets what has run
    command = [server.bin / "pg_ctl", "-D", server.data, "-m", "fast", "-w", "-l", server.base / "log", "restart"]
    assert devserver.run(command, server.base).returncode == 0


@pytest.mark.slow
def test_schedule_cleanup_is_idempotent_and_ticks(
    cron_server: Server, cron_dsn: str, connect: Callable[..., Connection]
) -> None:
    admin = connect(role="mdm_admin", dsn=cron_dsn)
    owner = connect(dsn=cron_dsn)
    with refused("MJ007", match="may not use schema cron"):
        call(admin, "schedule_cleanup")
    owner.execute("grant usage on schema cron to mdm_admin")

    for _ in range(2):
        assert sorted(row["job_name"] for row in call(admin, "schedule_cleanup")) == ENTRIES
    assert scheduled(owner) == [(name, "test_mdm_admin") for name in ENTRIES]

    stuck = make_job(owner, "running", "index_sync")["id"]
    age(owner, stuck)
    old = make_job(owner, "done", "index_sync")["id"]
    owner.execute("update mdm.aa_job set completed_at = '2020-01-01Z' where id = %s", (old,))
    owner.execute(
        "insert into cron.job_run_details (jobid, runid, username, command, status, end_time)"
        " select 0, -n, 'test_mdm_admin', 'select 1', 'succeeded', '2020-01-01Z' from generate_series(1, 10000) n"
    )
    # and jobs whose work is SQL, without a runner
    admin.execute("select cron.schedule('sql_jobs', '* * * * *', 'call mdm.run_sql_jobs()')")
    sql_job = enqueue(owner, "cleanup_jobs")
    # pg_cron looks once a minute, and once when it starts
    owner.execute("select cron.alter_job(jobid, '@reboot') from cron.job")
    restart(cron_server)
    admin, owner = connect(role="mdm_admin", dsn=cron_dsn), connect(dsn=cron_dsn)
    ran = "select count(distinct d.command) = 4 from cron.job_run_details d where d.end_time > '2021-01-01Z'"
    eventually(lambda: value(owner, ran))

    ended = rows(owner, "select command, status, return_message from cron.job_run_details where jobid > 0")
    assert {row["status"] for row in ended} == {"succeeded"}, ended
    assert status(owner, stuck) == "pending"
    assert status(owner, old) == "gone"
    assert status(owner, sql_job) == "done"
    assert value(owner, "select count(*) from cron.job_run_details where jobid = 0") == 0
    assert value(owner, "select count(*) from mdm.v_job_health where subject = '(upkeep)' and warning is not null") == 0

    assert value(admin, "select mdm.unschedule_cleanup()") == 3
    assert value(admin, "select mdm.unschedule_cleanup()") == 0
    assert scheduled(owner) == [("sql_jobs", "test_mdm_admin")]


@pytest.mark.slow
def test_schedule_cleanup_refuses_roles_that_could_not_do_it(cron_dsn: str, connect: Callable[..., Connection]) -> None:
    owner = connect(dsn=cron_dsn)
    with refused("42501"):
        call(connect(role="mdm_worker", dsn=cron_dsn), "schedule_cleanup")
    owner.execute("grant usage on schema cron to mdm_admin")
    owner.execute("set role mdm_admin")
    with refused("MJ007", match="cannot log in"):
        call(owner, "schedule_cleanup")


def test_schedule_cleanup_says_that_pg_cron_is_missing(conn: Connection, connect: Callable[..., Connection]) -> None:
    for connection in (conn, connect(role="mdm_admin")):
        with refused("MJ007", match="pg_cron is not installed"):
            call(connection, "schedule_cleanup")
        with refused("MJ007", match="pg_cron is not installed"):
            connection.execute("select mdm.unschedule_cleanup()")
