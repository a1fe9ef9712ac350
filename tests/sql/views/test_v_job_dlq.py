"""v_job_dlq (S9.1): the dead jobs, newest first, redacted as their kind says."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from jobs import STATES, Connection, ids, make_job, make_kind, make_tenant, rows


def dlq(conn: Connection) -> list[dict[str, object]]:
    return rows(conn, "select * from mdm.v_job_dlq")


def test_v_job_dlq_shows_dead_jobs_only(conn: Connection) -> None:
    made = {state: make_job(conn, state)["id"] for state in STATES[1:]}
    make_job(conn, "pending")
    assert ids(dlq(conn)) == [made["dlq"]]


def test_v_job_dlq_shows_what_an_admin_needs(conn: Connection) -> None:
    row = make_job(
        conn,
        "dlq",
        payload={"a": 1},
        tenant_id=make_tenant(conn),
        idempotency_key="k",
        context=Jsonb({"t": 1}),
    )
    [shown] = dlq(conn)
    assert shown == {name: row[name] for name in shown}
    assert {"id", "job_kind", "tenant_id", "last_error", "payload", "attempts", "completed_at"} <= set(shown)


def test_v_job_dlq_hides_what_the_kind_lists(conn: Connection) -> None:
    make_kind(conn, "reindex", redact=["body", "token"])
    make_job(conn, "dlq", payload={"body": {"x": 1}, "token": None, "to": "a"})
    assert dlq(conn)[0]["payload"] == {"body": "[redacted]", "token": "[redacted]", "to": "a"}


def test_v_job_dlq_shows_the_newest_first(conn: Connection) -> None:
    made = [make_job(conn, "dlq")["id"] for _ in range(4)]
    conn.execute("update mdm.aa_job set completed_at = '2030-01-01' where id = %s", (made[1],))
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01' where id = any(%s)", ([made[2], made[3]],))
    assert ids(dlq(conn)) == [made[1], made[0], made[3], made[2]]


def test_v_job_dlq_shows_jobs_of_a_kind_that_is_gone(conn: Connection) -> None:
    job_id = make_job(conn, "dlq", payload={"a": 1})["id"]
    conn.execute("delete from mdm.aa_job_kind where job_kind = 'reindex'")
    assert [(row["id"], row["payload"]) for row in dlq(conn)] == [(job_id, {"a": 1})]
