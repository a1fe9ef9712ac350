"""Who is said to have acted (D11): given, mapped to the login, or unknown; the login itself is stored beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from jobs import Connection, age, audit, call, claim_one, enqueue, make_job, make_kind, value

# action -> how a role brings it about; `actor` is what it passes as p_actor_principal_id
Act = Callable[[Connection, Connection, dict[str, Any]], int | str]


def job_enqueued(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    return enqueue(caller, **actor)


def job_enqueued_with_key(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    return enqueue(caller, idempotency_key="k", **actor)


def job_enqueued_by_update(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    enqueue(conn, idempotency_key="k")
    return enqueue(caller, idempotency_key="k", on_conflict="update", **actor)


def job_enqueued_in_bulk(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    return int(call(caller, "enqueue_jobs", jobs=Jsonb([{"job_kind": "reindex"}]), **actor)[0]["job_id"])


def job_enqueued_in_bulk_with_key(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    jobs = Jsonb([{"job_kind": "reindex", "idempotency_key": "k"}])
    return int(call(caller, "enqueue_jobs", jobs=jobs, **actor)[0]["job_id"])


def lease(conn: Connection, **parameters: Any) -> dict[str, Any]:
    claimed = make_job(conn, "running", **parameters)
    return {"job_id": claimed["id"], "lease_no": claimed["lease_no"]}


def job_done(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    claimed = lease(conn)
    call(caller, "finish_job", **claimed, **actor)
    return int(claimed["job_id"])


def job_done_in_bulk(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    claimed = lease(conn)
    call(caller, "finish_jobs", job_ids=[claimed["job_id"]], lease_nos=[claimed["lease_no"]], **actor)
    return int(claimed["job_id"])


def job_done_superseded(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    claimed = lease(conn, idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update")
    call(caller, "fail_job", **claimed, error="x", **actor)
    return int(claimed["job_id"])


def job_dlq(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    claimed = lease(conn)
    call(caller, "fail_job", **claimed, error="x", retryable=False, **actor)
    return int(claimed["job_id"])


def job_replay(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    job_id = make_job(conn, "dlq")["id"]
    call(caller, "replay_job", job_id=job_id, **actor)
    return int(job_id)


def job_discard(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    job_id = make_job(conn, "dlq")["id"]
    call(caller, "discard_job", job_id=job_id, **actor)
    return int(job_id)


def job_stop(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    job_id = make_job(conn, "dlq")["id"]
    call(caller, "stop_job", job_id=job_id, **actor)
    return int(job_id)


def job_kind_changed(conn: Connection, caller: Connection, actor: dict[str, Any]) -> int | str:
    call(caller, "set_job_kind", job_kind="reindex", settings={"priority": 1}, **actor)
    return "reindex"


ACTS: list[tuple[Act, str]] = [
    (job_enqueued, "mdm_producer"),
    (job_enqueued_with_key, "mdm_producer"),
    (job_enqueued_by_update, "mdm_producer"),
    (job_enqueued_in_bulk, "mdm_producer"),
    (job_enqueued_in_bulk_with_key, "mdm_producer"),
    (job_done, "mdm_worker"),
    (job_done_in_bulk, "mdm_worker"),
    (job_done_superseded, "mdm_worker"),
    (job_dlq, "mdm_worker"),
    (job_replay, "mdm_admin"),
    (job_discard, "mdm_admin"),
    (job_stop, "mdm_admin"),
    (job_kind_changed, "mdm_admin"),
]


def unknown(conn: Connection) -> UUID:
    principal: UUID = value(conn, "select id from mdm.aa_principal where name = 'unknown'")
    return principal


@pytest.mark.parametrize("who", ["given", "mapped", "given and mapped", "unknown"])
@pytest.mark.parametrize(("act", "role"), ACTS, ids=lambda value: getattr(value, "__name__", value))
def test_d11_audit_row_names_the_actor_and_the_login(
    conn: Connection, connect: Callable[..., Connection], act: Act, role: str, who: str
) -> None:
    expected = uuid4() if "given" in who else unknown(conn)
    if "mapped" in who:
        mapped: UUID = value(
            conn, "insert into mdm.aa_principal (name, role_name) values ('x', %s) returning id", f"test_{role}"
        )
        expected = expected if "given" in who else mapped
    object_id = act(conn, connect(role=role), {"actor_principal_id": expected if "given" in who else None})
    row = audit(conn, object_id)[-1]
    assert act.__name__.startswith(row["action"])
    assert (row["actor_principal_id"], row["session_role"]) == (expected, f"test_{role}")


def test_d11_actor_of_what_recovery_and_retention_do_is_the_login(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    worker = connect(role="mdm_worker")
    dead = make_job(conn, "running", max_attempts=1)["id"]
    age(conn, dead)
    call(worker, "recover_stale_jobs")
    make_kind(conn, "reindex", retention_dlq="0")
    call(worker, "purge_jobs")
    found = [(row["action"], row["actor_principal_id"], row["session_role"]) for row in audit(conn, dead)[1:]]
    assert found == [
        ("job_dlq", unknown(conn), "test_mdm_worker"),
        ("job_discard", unknown(conn), "test_mdm_worker"),
    ]


def test_d11_set_role_changes_nothing(conn: Connection) -> None:
    """The fact is the login, not the role that the session plays."""
    conn.execute("set role mdm_owner")
    job_id = enqueue(conn)
    conn.execute("reset role")
    assert audit(conn, job_id)[0]["session_role"] == conn.info.user


def test_d11_settings_of_the_session_name_nobody(conn: Connection) -> None:
    for name in ("mdm.actor", "app.current_user", "mdm.actor_principal_id"):
        conn.execute("select set_config(%s, %s, false)", (name, str(uuid4())))
    assert audit(conn, enqueue(conn))[0]["actor_principal_id"] == unknown(conn)


def test_d11_missing_unknown_principal_is_no_error(conn: Connection) -> None:
    conn.execute("delete from mdm.aa_principal")
    job_id = enqueue(conn)
    claimed = claim_one(conn)
    call(conn, "finish_job", job_id=job_id, lease_no=claimed["lease_no"])
    assert [row["actor_principal_id"] for row in audit(conn, job_id)] == [None, None]


def test_d11_two_principals_of_one_login_are_no_error(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    """A platform's own table of principals may have no unique names (D20)."""
    conn = connect(dsn=fresh_dsn)
    conn.execute("alter table mdm.aa_principal drop constraint aa_principal_role_name_key")
    conn.execute("alter table mdm.aa_principal drop constraint aa_principal_name_key")
    actors = {
        value(conn, "insert into mdm.aa_principal (name, role_name) values ('unknown', session_user) returning id")
        for _ in range(2)
    }
    claimed = make_job(conn, "running")
    call(conn, "finish_job", job_id=claimed["id"], lease_no=claimed["lease_no"])
    assert {row["actor_principal_id"] for row in audit(conn, claimed["id"])} <= actors
    conn.execute("update mdm.aa_principal set role_name = null")
    assert audit(conn, enqueue(conn, idempotency_key="k"))[0]["actor_principal_id"] is not None
