"""The runner's connections, against the real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from invariants import plant
from jobrunner.db.call import Call, LeaseLost, nothing
from jobrunner.db.connect import Target
from jobrunner.db.operator import stop_job
from jobrunner.db.session import CommitLost, Session
from jobrunner.db.upkeep import cleanup_jobs
from jobrunner.db.worker import check_lease, claim_job, finish_job
from jobs import Connection, claim_one, enqueue, job, status, value
from runnerkit import eventually, said

Open = Callable[..., Session]


@pytest.fixture
def opened(dsn: str) -> Iterator[Open]:
    """Open sessions, closed at the end."""
    sessions: list[Session] = []

    def open_one(where: str = dsn, pooler: bool = False, lock_seconds: float = 0) -> Session:
        sessions.append(Session(Target(where, pooler), "test", lock_seconds=lock_seconds))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


def ask(text: Any) -> Call[Any]:
    return Call(text, lambda rows: rows[0][0])


@pytest.mark.parametrize("pooler", [False, True])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_b39_session_is_read_committed_whatever_the_role_says(
    fresh_dsn: str, opened: Open, connect: Any, level: str, pooler: bool
) -> None:
    admin = connect(dsn=fresh_dsn)
    admin.execute(f"alter database {admin.info.dbname} set default_transaction_isolation = '{level}'")
    session = opened(fresh_dsn, pooler=pooler)
    show = ask("select current_setting('transaction_isolation')")
    assert session.run(show) == "read committed"
    session.begin(10)
    assert session.connection().execute("show transaction_isolation").fetchone() == ("read committed",)


def test_session_says_who_it_is_and_watches_its_peer(opened: Open) -> None:
    conn = opened().connection()
    assert conn.info.parameter_status("application_name") == "jobrunner test"
    assert conn.info.get_parameters()["keepalives_idle"] == "15"
    assert conn.info.get_parameters()["tcp_user_timeout"] == "30000"


def test_session_settings_of_the_dsn_win(dsn: str, opened: Open) -> None:
    session = opened(f"{dsn}&connect_timeout=3&application_name=mine&options=-c%20work_mem%3D5MB")
    assert session.run(ask("select current_setting('work_mem')")) == "5MB"
    assert session.run(ask("select current_setting('default_transaction_isolation')")) == "read committed"
    assert session.connection().info.parameter_status("application_name") == "mine"


def test_b57_session_behind_a_pooler_prepares_nothing(opened: Open) -> None:
    session = opened(pooler=True)
    for _ in range(8):
        session.run(ask("select count(*) from pg_prepared_statements"))
    assert session.run(ask("select count(*) from pg_prepared_statements")) == 0


@pytest.mark.parametrize("pooler", [False, True])
def test_session_rehearsal_leaves_nothing(conn: Connection, opened: Open, pooler: bool) -> None:
    session, job_id = opened(pooler=pooler), enqueue(conn)
    assert session.rehearse(stop_job(job_id=job_id, reason=None, actor=None)) == "stopped"
    assert (status(conn, job_id), session.status) == ("pending", TransactionStatus.IDLE)
    with pytest.raises(psycopg.Error, match="no job 99"):
        session.rehearse(stop_job(job_id=99, reason=None, actor=None))
    assert session.status is TransactionStatus.IDLE


@pytest.mark.parametrize("pooler", [False, True])
def test_session_error_leaves_no_transaction_behind(opened: Open, pooler: bool) -> None:
    session = opened(pooler=pooler)
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.run(ask("select 1/0"))
    assert session.status is TransactionStatus.IDLE
    assert session.run(ask("select 1")) == 1


@pytest.mark.parametrize("pooler", [False, True])
def test_session_with_a_limit_does_not_wait_for_a_lock(conn: Connection, opened: Open, pooler: bool) -> None:
    session = opened(pooler=pooler, lock_seconds=0.1)
    with conn.transaction():
        conn.execute("lock table mdm.aa_job_kind in access exclusive mode")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            session.run(ask("select count(*)::text from mdm.aa_job_kind"))
    assert int(session.run(ask("select count(*)::text from mdm.aa_job_kind"))) > 0


def test_session_waits_for_a_thread_that_uses_its_connection(opened: Open) -> None:
    session = opened()
    given = session.begin(60)
    ending = threading.Thread(target=session.rollback)
    with given.lock:
        ending.start()
        ending.join(0.2)
        assert ending.is_alive()
        assert given.info.transaction_status.name == "INTRANS"
    ending.join(30)
    assert given.info.transaction_status.name == "IDLE"


def test_session_maps_a_lost_lease_with_its_detail(conn: Connection, opened: Open) -> None:
    enqueue(conn)
    row = claim_one(conn)
    session = opened()
    session.run(finish_job(job_id=row["id"], lease_no=row["lease_no"]))
    with pytest.raises(LeaseLost) as raised:
        session.run(check_lease(job_id=row["id"], lease_no=row["lease_no"]))
    assert raised.value.detail == "already ended by this lease"


def test_session_transaction_bounds_its_idleness(opened: Open) -> None:
    conn = opened().begin(17)
    assert conn.execute("show idle_in_transaction_session_timeout").fetchone() == ("17s",)


def test_session_commit_of_an_aborted_transaction_is_an_error(opened: Open) -> None:
    session = opened()
    conn = session.begin(10)
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1/0")
    with pytest.raises(CommitLost):
        session.commit()
    session.rollback()
    assert session.status is TransactionStatus.IDLE


def test_session_commit_runs_its_calls_in_the_open_transaction(conn: Connection, opened: Open) -> None:
    job_id = enqueue(conn)
    row = claim_one(conn)
    session = opened()
    session.begin(10).execute("update mdm.aa_tenant set name = name")
    session.commit(finish_job(job_id=job_id, lease_no=row["lease_no"]))
    assert job(conn, job_id)["status"] == "done"


def test_session_claims_kinds_of_any_name(opened: Open) -> None:
    kinds = ["a", "b,c", 'quo"ted', "back\\slash", "{}", "NULL", "", "two words ", "\u00fc"]
    sent = claim_job(worker_id="w", kinds=kinds, tenant_ids=None, limit=1, floor=None).params["kinds"]
    assert opened().run(Call("select %(kinds)s::text[]", lambda rows: rows[0][0], {"kinds": sent})) == kinds


@pytest.mark.parametrize("value", ["1", "1; drop table t", True, None, 1.5])
def test_session_writes_only_numbers_into_its_scripts(opened: Open, value: Any) -> None:
    with pytest.raises(TypeError):
        opened().begin(10, Call("select %(value)s", nothing, {"value": value}))


LEFT = (
    "set search_path = ''; set statement_timeout = '1h'; create temp table left_over (n int);"
    " select pg_advisory_lock(1); listen somebody; declare c cursor with hold for select 1"
)


@pytest.mark.parametrize("way", ["commit", "rollback", "handler commits"])
def test_b55_session_forgets_what_a_handler_left(conn: Connection, opened: Open, way: str) -> None:
    session = opened()
    given = session.begin(10)
    for statement in [*LEFT.split("; "), "set role mdm_monitor"]:
        given.execute(statement.encode())
    if way == "handler commits":
        given.execute("commit")
    if way == "commit":
        session.commit(ask("select 1"))
    else:
        session.rollback()
    after = session.connection()
    assert after is given, "a clean session is worth keeping"
    assert after.execute("select current_setting('search_path'), current_user").fetchone() == (
        value(conn, "show search_path"),
        value(conn, "select current_user"),
    )
    assert after.execute("show statement_timeout").fetchone() == ("0",)
    assert after.execute("select to_regclass('pg_temp.left_over') is null").fetchone() == (True,)
    assert after.execute("select count(*) from pg_listening_channels()").fetchone() == (0,)
    assert after.execute("select count(*) from pg_cursors where name = 'c'").fetchone() == (0,)
    assert (
        value(conn, "select count(*) from pg_locks where locktype = 'advisory' and pid = %s", after.info.backend_pid)
        == 0
    )


@pytest.mark.parametrize("leave", ["autocommit", "closed", "pipeline", "row_factory"])
def test_session_survives_what_a_handler_does_to_the_connection(opened: Open, leave: str) -> None:
    session = opened()
    given = session.begin(10)
    if leave == "closed":
        given.close()
    elif leave == "autocommit":
        given.execute("commit")
        given.autocommit = False
    elif leave == "pipeline":
        given.pipeline().__enter__()
    else:
        given.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
    session.rollback()
    assert session.run(ask("select 1")) == 1


def test_session_opens_again_after_its_backend_was_ended(conn: Connection, opened: Open) -> None:
    session = opened()
    conn.execute("select pg_terminate_backend(%s, 30000)", (session.connection().info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        session.run(ask("select 1"))
    assert session.run(ask("select 1")) == 1


def test_session_severed_by_another_thread_fails_at_once_and_opens_again(conn: Connection, opened: Open) -> None:
    session = opened()
    pid = session.connection().info.backend_pid
    failed: list[BaseException] = []

    def work() -> None:
        try:
            session.run(ask("select pg_sleep(60)::text"))
        except psycopg.OperationalError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: value(conn, "select count(*) from pg_stat_activity where pid = %s and state = 'active'", pid))
    assert session.busy_seconds > 0
    cut = session.sever()
    thread.join(30)
    assert len(failed) == 1
    assert cut is not None
    session.close()
    cut.cancel()  # also now that its user has noticed and closed it
    gone = "select count(*) = 0 from pg_stat_activity where pid = %s and state = 'active'"
    assert eventually(lambda: value(conn, gone, pid))
    assert session.run(ask("select 1")) == 1
    assert session.busy_seconds == 0


def test_session_runs_a_procedure_that_commits(opened: Open) -> None:
    session = opened()
    session.run_alone(Call("call mdm.cleanup_jobs()", nothing))
    assert session.status is TransactionStatus.IDLE


SAY = "do $$ begin raise {} 'no ink left' using errcode = 'MJ999', detail = 'two', hint = 'buy some'; end $$"


@pytest.mark.parametrize("pooler", [False, True])
def test_session_logs_what_the_server_warns_of_and_not_what_it_mentions(
    opened: Open, lines: pytest.LogCaptureFixture, pooler: bool
) -> None:
    session = opened(pooler=pooler)
    for level in ("debug", "info", "notice"):
        session.run(Call(SAY.format(level), nothing))
    assert lines.records == []

    session.run(Call(SAY.format("warning"), nothing))
    session.begin(10).execute(SAY.format("warning").encode())
    session.commit(Call(SAY.format("warning"), nothing))
    line = {"session": "test", "sqlstate": "MJ999", "message": "no ink left", "detail": "two", "hint": "buy some"}
    assert said(lines, "server_warning") == [line] * 3
    assert {record.levelname for record in lines.records} == {"WARNING"}


def test_cleanup_of_a_broken_invariant_is_logged(
    fresh_dsn: str, connect: Callable[..., Connection], opened: Open, lines: pytest.LogCaptureFixture
) -> None:
    job_id = plant(connect(dsn=fresh_dsn), "audit_row_missing")
    opened(fresh_dsn).run_alone(cleanup_jobs())
    [line] = said(lines, "server_warning")
    assert line["message"] == f"invariant audit_row_missing does not hold: 1 jobs, {job_id}"
    assert "watch.md" in line["hint"]
