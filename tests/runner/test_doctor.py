"""`jobrunner doctor` on real servers: each check in order, and out of order with its remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from psycopg.conninfo import make_conninfo

from incli import run
from jobrunner.checks import clock_skew, connection_path, server_version
from jobrunner.db.inspect import Login
from jobs import Connection

Finding = dict[str, str | None]
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LOGIN = Login("r", "d", 150004, "15.4", "UTF8", False, 7, NOW, False)


def examined(dsn: str, *arguments: str) -> tuple[int, dict[str, Finding]]:
    """Exit code and findings by check."""
    code, out, log = run(dsn, "doctor", "--json", *arguments)
    findings = {each["check"]: each for each in json.loads(out)}
    assert code == int(any(each["state"] == "fail" for each in findings.values())), log
    assert all(each["remedy"] for each in findings.values() if each["state"] != "ok")
    return code, findings


def test_doctor_finds_a_fresh_schema_in_order(conn: Connection, dsn: str) -> None:
    conn.execute("call mdm.cleanup_jobs()")
    code, found = examined(dsn)
    assert code == 0
    assert {check for check, each in found.items() if each["state"] != "ok"} <= {"roles", "oldest snapshot"}
    assert set(found) == {
        *("connection", "server", "pooler", "clock", "schema", "migrations", "roles", "grants"),
        *("upkeep compact", "upkeep invariants", "upkeep purge", "upkeep recover"),
        *("runners", "pg_cron", "autovacuum", "oldest snapshot"),
    }


def test_doctor_on_a_terminal_less_pipe_is_a_line_a_check(conn: Connection, dsn: str) -> None:
    code, out, _ = run(dsn, "doctor")
    assert code == 0
    assert out.splitlines()[0].split() == ["check", "state", "found", "remedy"]


def test_doctor_without_a_server() -> None:
    code, found = examined("postgresql://postgres@/mdm?host=/nowhere&port=5432")
    assert code == 1
    assert list(found) == ["connection"]


def test_doctor_without_a_schema(empty_dsn: str) -> None:
    code, found = examined(empty_dsn)
    assert (code, found["schema"]["state"], found["schema"]["remedy"]) == (1, "fail", "run `jobrunner migrate`")


def test_doctor_with_a_newer_schema(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    connect(dsn=fresh_dsn).execute(
        "create or replace function mdm.job_schema_version() returns int language sql return 99"
    )
    code, found = examined(fresh_dsn)
    assert (code, found["schema"]["state"], found["schema"]["remedy"]) == (1, "fail", "upgrade mdm-jobs")


def test_doctor_sees_a_file_that_differs(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    connect(dsn=fresh_dsn).execute("update mdm.aa_schema_object set sha256 = 'x' where path like '%claim_job.sql'")
    _, found = examined(fresh_dsn)
    assert (found["migrations"]["state"], found["migrations"]["remedy"]) == ("warn", "run `jobrunner migrate`")


def test_doctor_of_a_schema_that_psql_installed(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    connect(dsn=fresh_dsn).execute("truncate mdm._yoyo_migration, mdm.aa_schema_object")
    _, found = examined(fresh_dsn)
    assert (found["migrations"]["state"], found["migrations"]["remedy"]) == ("ok", None)
    assert "installed by psql" in str(found["migrations"]["found"])


def test_doctor_of_each_role_says_what_it_may_not_see(conn: Connection, dsn: str) -> None:
    _, found = examined(make_conninfo(dsn, user="test_mdm_worker"))
    assert (found["roles"]["state"], found["roles"]["found"]) == ("ok", "test_mdm_worker has mdm_worker")
    assert found["upkeep"]["state"] == "warn"
    assert "v_job_health" in str(found["upkeep"]["found"])
    _, found = examined(make_conninfo(dsn, user="test_mdm_monitor"))
    assert "upkeep recover" in found
    assert found["oldest snapshot"]["remedy"] == "grant pg_read_all_stats to the login of whoever watches"


def test_doctor_of_a_login_without_roles_fails(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    owner = connect(dsn=fresh_dsn)
    owner.execute("create role test_stranger login")
    try:
        owner.execute("grant usage on schema mdm to test_stranger")
        code, found = examined(make_conninfo(fresh_dsn, user="test_stranger"))
        assert (code, found["roles"]["state"]) == (1, "fail")
        assert "to test_stranger" in str(found["roles"]["remedy"])
    finally:
        owner.execute("drop owned by test_stranger")
        owner.execute("drop role test_stranger")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("grant execute on function mdm.discard_job to public", "everybody may call discard_job"),
        ("revoke execute on function mdm.claim_job from mdm_worker", "mdm_worker may not call claim_job"),
        ("revoke usage on schema mdm from mdm_admin", "mdm_admin may not use schema mdm"),
    ],
)
def test_doctor_finds_wrong_grants(fresh_dsn: str, connect: Callable[..., Connection], damage: str, said: str) -> None:
    connect(dsn=fresh_dsn).execute(damage.encode())
    code, found = examined(fresh_dsn)
    assert (code, found["grants"]["state"], found["grants"]["found"]) == (1, "fail", said)


def test_b72_doctor_fails_when_the_upkeep_is_overdue(conn: Connection, dsn: str) -> None:
    assert examined(dsn)[1]["upkeep recover"]["state"] == "warn"
    conn.execute("call mdm.cleanup_jobs()")
    assert examined(dsn)[1]["upkeep recover"]["state"] == "ok"
    conn.execute("update mdm.aa_job_upkeep set last_at = clock_timestamp() - interval '16 minutes'")
    code, found = examined(dsn)
    assert (code, found["upkeep recover"]["state"], found["upkeep purge"]["state"]) == (1, "fail", "fail")
    assert "start a runner" in str(found["upkeep recover"]["remedy"])


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("alter table mdm.aa_job set (autovacuum_enabled = off)", "fail"),
        ("alter table mdm.aa_job set (autovacuum_vacuum_scale_factor = 0.2)", "warn"),
        ("alter table mdm.aa_job reset (autovacuum_vacuum_cost_delay)", "warn"),
    ],
)
def test_doctor_knows_how_the_table_is_to_be_vacuumed(
    fresh_dsn: str, connect: Callable[..., Connection], change: str, state: str
) -> None:
    connect(dsn=fresh_dsn).execute(change.encode())
    assert examined(fresh_dsn)[1]["autovacuum"]["state"] == state


def test_doctor_names_who_holds_the_oldest_snapshot(
    conn: Connection, dsn: str, connect: Callable[..., Connection]
) -> None:
    reader = connect(autocommit=False, application_name="report")
    reader.execute("set transaction isolation level repeatable read")
    reader.execute("select 1")
    found = examined(dsn)[1]["oldest snapshot"]
    assert f"pid {reader.info.backend_pid} (report)" in str(found["found"])


# -- pg_cron


@pytest.fixture
def cron(cron_dsn: str, connect: Callable[..., Connection]) -> Connection:
    """A session of the database that pg_cron runs in, where the upkeep is scheduled."""
    owner = connect(dsn=cron_dsn)
    owner.execute("select mdm.schedule_cleanup()")
    return owner


def found_of_cron(cron_dsn: str) -> Finding:
    return examined(cron_dsn)[1]["pg_cron"]


def run_of(owner: Connection, state: str, message: str) -> None:
    """Let mdm_cleanup have run."""
    owner.execute(
        "insert into cron.job_run_details (jobid, runid, username, command, status, return_message, end_time)"
        " select jobid, nextval('cron.runid_seq'), username, command, %s, %s, now() from cron.job"
        " where jobname = 'mdm_cleanup'",
        (state, message),
    )


def test_doctor_names_what_pg_cron_runs(cron: Connection, cron_dsn: str) -> None:
    found = found_of_cron(cron_dsn)
    assert (found["state"], found["found"]) == ("ok", "runs mdm_cleanup, mdm_recover, mdm_trim_cron")


def test_doctor_tells_of_pg_cron_where_nothing_is_scheduled(cron: Connection, cron_dsn: str) -> None:
    cron.execute("select mdm.unschedule_cleanup()")
    found = found_of_cron(cron_dsn)
    assert found["state"] == "ok"
    assert "nothing of ours is scheduled" in str(found["found"])


def test_doctor_warns_of_a_run_of_pg_cron_that_failed_until_the_next(cron: Connection, cron_dsn: str) -> None:
    run_of(cron, "failed", "role does not exist")
    found = found_of_cron(cron_dsn)
    assert (found["state"], found["found"]) == ("warn", "last run failed: mdm_cleanup: role does not exist")
    run_of(cron, "succeeded", "1 row")
    assert found_of_cron(cron_dsn)["state"] == "ok"


def test_doctor_warns_of_an_entry_of_pg_cron_that_is_switched_off(cron: Connection, cron_dsn: str) -> None:
    cron.execute("select cron.alter_job(jobid, active => false) from cron.job where jobname = 'mdm_recover'")
    found = found_of_cron(cron_dsn)
    assert (found["state"], found["found"]) == ("warn", "switched off: mdm_recover")
    cron.execute("select cron.alter_job(jobid, active => true) from cron.job where jobname = 'mdm_recover'")
    assert found_of_cron(cron_dsn)["state"] == "ok"


def test_doctor_of_a_login_that_may_not_look_into_pg_cron(cron: Connection, cron_dsn: str) -> None:
    found = found_of_cron(make_conninfo(cron_dsn, user="test_mdm_monitor"))
    assert (found["state"], found["found"]) == ("ok", "installed; the login may not look into it")


# -- what no server of the tests is: the rules alone


@pytest.mark.parametrize(
    ("login", "state"),
    [
        (LOGIN, "ok"),
        (LOGIN._replace(version_num=140020), "fail"),
        (LOGIN._replace(read_only=True), "fail"),
        (LOGIN._replace(encoding="SQL_ASCII"), "warn"),
    ],
)
def test_server_version_judges(login: Login, state: str) -> None:
    assert server_version(login).state == state


@pytest.mark.parametrize(("told", "pooler", "state"), [(7, False, "ok"), (8, True, "ok"), (8, False, "warn")])
def test_connection_path_detects_a_pooler_by_its_pid(told: int, pooler: bool, state: str) -> None:
    assert connection_path(LOGIN, told, pooler=pooler).state == state


@pytest.mark.parametrize(
    ("ahead_seconds", "state", "side"),
    [(0, "ok", ""), (1.9, "ok", ""), (60, "warn", "ahead of"), (-60, "warn", "behind")],
)
def test_clock_skew_judges(ahead_seconds: float, state: str, side: str) -> None:
    found = clock_skew(NOW + timedelta(seconds=ahead_seconds), NOW, NOW)
    assert found.state == state
    assert side in found.found


def test_doctor_is_not_fooled_by_a_slow_answer() -> None:
    assert clock_skew(NOW + timedelta(seconds=5), NOW, NOW + timedelta(seconds=10)).state == "ok"
