"""Who may do what (design 3, B61, B62, B64): roles, functions, tables, views, hostile search paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobs import (
    Connection,
    call,
    claim_one,
    enqueue,
    job,
    make_job,
    make_tenant,
    rows,
    status,
    value,
    violations,
)

NOBODY = "test_nobody"  # a login that may connect and use the schema, and is a member of nothing
EVERYBODY = {"job_schema_version"}
CLAIMING = {"claim_job", "fail_job"}
UPKEEP = {
    "recover_stale_jobs",
    "purge_jobs",
    "compact_outbox",
    "wake_outbox",
    "give_up_deliveries",
    "settle_emails",
    "settle_index_status",
    "settle_imports",
    "settle_scans",
    "watch_invariants",
    "cleanup_step",
    "cleanup_jobs",
}
WITHOUT_A_RUNNER = {"run_sql_jobs", "run_sql_job_step"}
PRODUCING = {"enqueue_job", "enqueue_jobs", "get_job", "request_reindex", "send_email"}
WATCHING = {
    "check_job_invariants",
    "count_jobs",
    "explain_job",
    "find_entries",
    "find_holders",
    "find_jobs",
    "oldest_due",
    "job_metrics",
    "_redact",
}
SETTINGS = {"job_kind_settings", "rate_limits"}
# the triggers of the platform's stand-ins
TRIGGERS = {
    "enqueue_bulk_import",
    "enqueue_gin_backfill",
    "enqueue_index_sync",
    "enqueue_outbox_dispatch",
    "enqueue_virus_scan",
    "_set_search_vector",
    "_forget_virus_scan",
}
# every function that is granted to anybody stands here
MAY_EXECUTE: dict[str, set[str]] = {
    NOBODY: EVERYBODY,
    "mdm_producer": EVERYBODY | PRODUCING,
    "mdm_worker": EVERYBODY
    | CLAIMING
    | UPKEEP
    | WITHOUT_A_RUNNER
    | SETTINGS
    | {"check_lease", "finish_job", "finish_jobs", "release_job", "release_jobs", "extend_jobs"}
    | {
        "job_metrics",
        "count_jobs",
        "oldest_due",
        "announce_runner",
        "check_tenants",
        "get_job",
        "reindex_chunk",
        "mark_email",
        "record_email",
    }
    | {"sync_index", "wants_index", "fail_index"}
    | {"attachment_to_scan", "record_scan", "fail_scan"}
    | {"claim_deliveries", "record_deliveries", "enqueue_next_dispatch"}
    | {"import_chunk", "fail_import"},
    "mdm_admin": EVERYBODY
    | CLAIMING
    | UPKEEP
    | WITHOUT_A_RUNNER
    | SETTINGS
    | PRODUCING
    | WATCHING
    | {"replay_job", "discard_job", "stop_job", "replay_jobs", "discard_jobs", "replay_deliveries"}
    | {"set_job_kind", "pause_kind", "resume_kind", "set_default_rate_limits"}
    | {"schedule_cleanup", "unschedule_cleanup", "_check_cron", "_cron_entries", "_raise"},
    "mdm_monitor": EVERYBODY | WATCHING,
    "mdm_indexer": EVERYBODY | TRIGGERS | {"_entity_search_vector", "lock_index_builds"},
}
WINDOWS = {
    "v_job_dlq",
    "v_job_running",
    "v_job_stale",
    "v_job_history",
    "v_job_health",
    "v_job_counts",
    "v_webhook_dlq",
    "v_reindex_progress",
}
MAY_READ = {"mdm_monitor": WINDOWS, "mdm_admin": WINDOWS, "mdm_worker": {"v_job_counts"}}
# mdm_indexer is a member of the owner of these, for their indexes
PLATFORM = {
    "aa_tenant",
    "aa_principal",
    "aa_principal_tenant",
    "aa_audit_log",
    "aa_email_log",
    "aa_email_suppression",
    "aa_import",
    "aa_import_row",
    "aa_outbox_event",
    "aa_webhook_delivery",
    "aa_webhook_endpoint",
    "ddm_attachment",
    "ddm_entity",
    "ddm_entity_type",
    "ddm_entity_type_attribute",
}
roles = pytest.mark.parametrize("role", MAY_EXECUTE)


@pytest.fixture
def nobody(shared_admin: Connection) -> None:
    """The login test_nobody."""
    if not shared_admin.execute("select 1 from pg_roles where rolname = %s", (NOBODY,)).fetchone():
        shared_admin.execute(f"create role {NOBODY} login".encode())
    shared_admin.execute(f"grant usage on schema mdm to {NOBODY}".encode())


@pytest.fixture
def as_role(nobody: None, connect: Callable[..., Connection]) -> Callable[[str], Connection]:
    """Log in as a member of a role, or as nobody."""

    def log_in(role: str) -> Connection:
        return connect(user=NOBODY) if role == NOBODY else connect(role=role)

    return log_in


def login(role: str) -> str:
    return role if role == NOBODY else f"test_{role}"


FUNCTIONS = """
    select f.proname::text, f.prokind = 'p' as is_procedure, has_function_privilege(%s, f.oid, 'execute') as allowed,
      f.prorettype = 'trigger'::regtype as is_trigger,
      (select array_agg(format('null::%%s', format_type(a.oid, null))) from unnest(f.proargtypes) a (oid)) as nulls
    from pg_proc f
    where f.pronamespace = 'mdm'::regnamespace
    order by 1
"""


@roles
def test_b61_role_may_execute_exactly_this(conn: Connection, nobody: None, role: str) -> None:
    assert {row["proname"] for row in rows(conn, FUNCTIONS, login(role)) if row["allowed"]} == MAY_EXECUTE[role]


@roles
def test_b61_calls_are_refused_but_these(conn: Connection, as_role: Callable[[str], Connection], role: str) -> None:
    """Every function is called, with NULLs: whoever may not, is told 42501; whoever may, anything but that.

    Triggers cannot be called by anybody.
    """
    caller = as_role(role)
    refused = set()
    functions = [row for row in rows(conn, FUNCTIONS, login(role)) if not row["is_trigger"]]
    for row in functions:
        verb = "call" if row["is_procedure"] else "select from"
        try:
            caller.execute(f"{verb} mdm.{row['proname']}({', '.join(row['nulls'] or [])})".encode())
        except psycopg.Error as error:
            if error.sqlstate == "42501":
                refused.add(row["proname"])
    assert {row["proname"] for row in functions} - refused == MAY_EXECUTE[role] - TRIGGERS


def test_b61_without_usage_of_the_schema_even_the_version_is_refused(
    fresh_dsn: str, nobody: None, connect: Callable[..., Connection]
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect(dsn=fresh_dsn, user=NOBODY).execute("select mdm.job_schema_version()")


RELATIONS = """
    select c.relname::text, c.relkind = 'v' as is_view, p.name as privilege
    from pg_class c
    cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) p (name)
    where c.relnamespace = 'mdm'::regnamespace
      and c.relkind in ('r', 'p', 'v')
      and (has_table_privilege(%s, c.oid, p.name)
        or p.name in ('select', 'insert', 'update', 'references') and has_any_column_privilege(%s, c.oid, p.name))
"""


@roles
def test_b61_no_role_reaches_a_table_and_views_are_read_by_these(conn: Connection, nobody: None, role: str) -> None:
    allowed = rows(conn, RELATIONS, login(role), login(role))
    views = {(row["relname"], row["privilege"]) for row in allowed if row["is_view"]}
    tables = {row["relname"] for row in allowed if not row["is_view"]}
    assert views == {(name, "select") for name in MAY_READ.get(role, set())}
    assert tables == (PLATFORM if role == "mdm_indexer" else set())


STATEMENTS = [
    "select from mdm.aa_job",
    "insert into mdm.aa_job (job_kind, priority, max_attempts) values ('reindex', 1, 1)",
    "update mdm.aa_job set priority = 1",
    "delete from mdm.aa_job",
    "truncate mdm.aa_job",
    "update mdm.aa_job_kind set enabled = false",
    "delete from mdm.aa_job_runner",
    "set role mdm_owner",
]
CREATIONS = ["create table mdm.mine ()", "create function mdm.mine() returns int language sql as 'select 1'"]
# mdm_indexer makes indexes in the schema
CREATORS = {"mdm_indexer"}


@pytest.mark.parametrize(
    ("role", "statement"),
    [(role, text) for role in MAY_EXECUTE for text in STATEMENTS + CREATIONS * (role not in CREATORS)],
)
def test_b61_table_statements_are_refused(
    conn: Connection, as_role: Callable[[str], Connection], role: str, statement: str
) -> None:
    enqueue(conn)
    with pytest.raises(psycopg.Error) as raised:
        as_role(role).execute(statement.encode())
    assert raised.value.sqlstate == "42501"
    assert value(conn, "select count(*) from mdm.aa_job") == 1


def test_b61_members_of_several_roles_can_do_both(conn: Connection, as_role: Callable[[str], Connection]) -> None:
    """The roles alone carry a job through its life: nothing needs the installer (B64)."""
    producer, worker, admin, monitor = map(as_role, ("mdm_producer", "mdm_worker", "mdm_admin", "mdm_monitor"))
    job_id = enqueue(producer, payload={"a": 1}, idempotency_key="k")
    claimed = claim_one(worker)
    call(worker, "fail_job", job_id=job_id, lease_no=claimed["lease_no"], error="x", retryable=False)
    assert [row["id"] for row in rows(monitor, "select id from mdm.v_job_dlq")] == [job_id]
    call(admin, "replay_job", job_id=job_id)
    claimed = claim_one(worker)
    call(worker, "finish_job", job_id=job_id, lease_no=claimed["lease_no"])
    assert call(producer, "get_job", job_id=job_id)[0]["status"] == "done"
    assert violations(monitor) == {}
    sessions = {row["session_role"] for row in rows(conn, "select session_role from mdm.aa_audit_log")}
    assert sessions == {"test_mdm_producer", "test_mdm_worker", "test_mdm_admin"}


# ---- hostile search paths (B62)


@pytest.fixture
def trapped(fresh_dsn: str, connect: Callable[..., Connection]) -> Iterator[Callable[..., Connection]]:
    """Log in with a search path that leads to traps first: tables, operators and functions of everyday names."""
    owner = connect(dsn=fresh_dsn)
    owner.execute(Path(__file__).with_name("traps.sql").read_bytes())

    def log_in(role: str | None = None) -> Connection:
        connection = connect(dsn=fresh_dsn, role=role)
        if role is not None:
            connection.execute("set search_path = evil, pg_catalog")
        return connection

    yield log_in
    assert owner.execute("select from evil.aa_job union all select from evil.aa_audit_log").fetchall() == []


def test_b62_traps_spring(trapped: Callable[..., Connection]) -> None:
    caller = trapped("mdm_worker")
    for expression in ("clock_timestamp()", "lower('A')", "1 < 2", "'a'::text = 'b'::text", "now() + interval '1 h'"):
        with pytest.raises(psycopg.Error) as raised:
            caller.execute(f"select {expression}".encode())
        assert raised.value.sqlstate == "EV001", expression
    with pytest.raises(psycopg.Error) as raised:
        caller.execute("""select '{"a": 1}'::jsonb ?| '{a}'::text[]""")
    assert raised.value.sqlstate == "EV001"


def test_b62_the_callers_objects_are_never_used(trapped: Callable[..., Connection]) -> None:
    """A whole life of jobs by every function, called by logins whose search path leads to traps."""
    conn = trapped()
    producer, worker, admin = map(trapped, ("mdm_producer", "mdm_worker", "mdm_admin"))
    tenant_id = make_tenant(conn, metadata={"rate_limit": {"reindex": {"rps": 1, "burst": 1}}})
    call(worker, "announce_runner", runner_id="r", kinds=["reindex"], tenant_ids=[tenant_id])
    call(admin, "set_job_kind", job_kind="reindex", settings={"redact": ["a"], "retention_failed": "0"})
    call(admin, "pause_kind", job_kind="reindex")
    call(admin, "resume_kind", job_kind="reindex")
    made = [enqueue(producer, tenant_id=tenant_id) for _ in range(4)]
    made.append(enqueue(producer, payload={"a": 1}, idempotency_key="k"))
    enqueue(producer, payload={"a": 2}, idempotency_key="k", on_conflict="update")
    call(producer, "enqueue_jobs", jobs='[{"job_kind": "reindex", "idempotency_key": "k"}, {"job_kind": "reindex"}]')
    floor = '{"reindex": {"120": "2020-01-01"}}'
    claimed = call(worker, "claim_job", worker_id="w", kinds=["reindex"], limit=3, tenant_ids=[tenant_id], floor=floor)
    claimed += call(worker, "claim_job", worker_id="w", kinds=["reindex", "cleanup_jobs"], limit=9)
    job_ids, leases = [row["id"] for row in claimed], [row["lease_no"] for row in claimed]
    assert job_ids[:5] == made
    enqueue(producer, idempotency_key="k", on_conflict="update")
    call(worker, "check_lease", job_id=job_ids[0], lease_no=leases[0])
    call(worker, "extend_jobs", job_ids=job_ids, lease_nos=leases)
    call(worker, "finish_job", job_id=job_ids[0], lease_no=leases[0])
    call(worker, "finish_jobs", job_ids=job_ids[1:2], lease_nos=leases[1:2])
    call(worker, "release_jobs", job_ids=job_ids[2:3], lease_nos=leases[2:3], retry_afters=["1 hour"])
    call(worker, "release_job", job_id=job_ids[3], lease_no=leases[3], reason="r")
    call(worker, "fail_job", job_id=job_ids[4], lease_no=leases[4], error="superseded")
    call(worker, "fail_job", job_id=job_ids[5], lease_no=leases[5], error="x")
    [dead] = call(worker, "claim_job", worker_id="w", kinds=["reindex"])
    call(worker, "fail_job", job_id=dead["id"], lease_no=dead["lease_no"], error="é" * 9000, retryable=False)
    with pytest.raises(psycopg.Error, match="lease lost"):
        call(worker, "finish_job", job_id=dead["id"], lease_no=dead["lease_no"])
    with pytest.raises(psycopg.Error, match="unknown job kind"):
        enqueue(producer, "nope")
    call(admin, "explain_job", job_id=dead["id"])
    call(admin, "job_metrics")
    call(admin, "check_job_invariants")
    for view in sorted(WINDOWS):
        assert admin.execute(sql.SQL("select * from mdm.{}").format(sql.Identifier(view))).fetchall() is not None
    assert admin.execute("select payload from mdm.v_job_dlq").fetchall() == [({},)]
    call(admin, "replay_jobs", filter={"job_kind": "reindex"}, dry_run=False)
    call(admin, "stop_job", job_id=dead["id"], reason="r")
    call(admin, "replay_job", job_id=dead["id"])
    call(admin, "discard_job", job_id=dead["id"])
    call(admin, "discard_jobs", filter={"all": True}, dry_run=False)
    call(worker, "job_kind_settings", kinds=["reindex"])
    call(worker, "rate_limits", kinds=["reindex"])
    call(producer, "get_job", job_id=made[0])
    stale = call(worker, "claim_job", worker_id="w", kinds=["reindex"], limit=1)
    conn.execute("update mdm.aa_job set claimed_at = '2020-01-01' where id = %s", (stale[0]["id"],))
    assert call(worker, "recover_stale_jobs") == [{"job_id": stale[0]["id"], "outcome": "pending"}]
    call(worker, "purge_jobs")
    call(worker, "compact_outbox")
    worker.execute("call mdm.cleanup_jobs()")
    worker.execute("call mdm.run_sql_jobs('{cleanup_jobs}')")
    assert violations(conn) == {}


def test_b62_redaction_cannot_be_talked_away(trapped: Callable[..., Connection]) -> None:
    """_redact runs with the rights of the reader, but not with his operators."""
    conn, monitor = trapped(), trapped("mdm_monitor")
    call(conn, "set_job_kind", job_kind="reindex", settings={"redact": ["secret"]})
    make_job(conn, "dlq", payload={"secret": "s"})
    assert monitor.execute("select payload from mdm.v_job_dlq").fetchall() == [({"secret": "[redacted]"},)]


def test_b62_cleanup_is_not_misled(trapped: Callable[..., Connection]) -> None:
    """cleanup_jobs has no path of its own (it commits), and names every operator and function in full."""
    conn, worker = trapped(), trapped("mdm_worker")
    claimed = make_job(conn, "running")
    conn.execute("update mdm.aa_job set claimed_at = '2020-01-01'")
    worker.execute("call mdm.cleanup_jobs('10 seconds')")
    assert status(conn, claimed["id"]) == "pending"


# ---- B64: nothing relies on the schema public


def test_b64_works_without_rights_on_the_schema_public(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    owner = connect(dsn=fresh_dsn)
    owner.execute("revoke all on schema public from public")
    producer, worker = connect(dsn=fresh_dsn, role="mdm_producer"), connect(dsn=fresh_dsn, role="mdm_worker")
    job_id = enqueue(producer)
    claimed = claim_one(worker)
    call(worker, "finish_job", job_id=claimed["id"], lease_no=claimed["lease_no"])
    worker.execute("call mdm.cleanup_jobs()")
    assert status(owner, job_id) == "done"


def test_every_callable_invoker_has_a_pinned_path_or_commits(conn: Connection) -> None:
    """A function that others than its owner may call either pins its search path or is one of the procedures."""
    query = """
        select f.proname::text
        from pg_proc f
        where f.pronamespace = 'mdm'::regnamespace
          and f.prokind = 'f'
          and not coalesce(f.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
          and exists (
            select
            from aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
            where a.grantee <> f.proowner)
    """
    assert [row["proname"] for row in rows(conn, query)] == []


def test_jobs_are_protected_from_their_owner_too(conn: Connection) -> None:
    query = "select relrowsecurity and relforcerowsecurity from pg_class where oid = 'mdm.aa_job'::regclass"
    assert value(conn, query) is True


def test_session_role_is_the_login_inside_definer_functions(
    conn: Connection, as_role: Callable[[str], Connection]
) -> None:
    job_id: Any = enqueue(as_role("mdm_producer"))
    assert job(conn, job_id)["status"] == "pending"
    assert value(conn, "select session_role from mdm.aa_audit_log") == "test_mdm_producer"
