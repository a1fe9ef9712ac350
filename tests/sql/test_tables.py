"""The tables (model): columns, checks that make impossible rows impossible, indexes, storage."""

from __future__ import annotations

import psycopg
import pytest

from jobs import Connection, make_job, rows, value

COLUMNS = {
    "aa_job": """
        id bigint not null, tenant_id uuid, job_kind text not null, status mdm.job_status not null,
        priority integer not null, available_at timestamp with time zone not null,
        payload jsonb not null, context jsonb, attempts integer not null, max_attempts integer not null,
        idempotency_key text, key_no integer not null, lease_no bigint, claimed_by text,
        claimed_at timestamp with time zone, heartbeat_at timestamp with time zone, claimed_together integer,
        run_alone boolean not null, releases integer not null, recoveries integer not null, last_error text,
        created_at timestamp with time zone not null, completed_at timestamp with time zone""",
    "aa_job_kind": """
        job_kind text not null, description text not null, base_delay interval not null, max_delay interval not null,
        jitter double precision not null, max_attempts integer not null, priority integer not null,
        stale_ttl interval not null, handler_timeout interval, retention_done interval, retention_dlq interval,
        retention_failed interval, audit_level text not null, tenant_required boolean not null, redact text[] not null,
        paused_until timestamp with time zone, paused_reason text, enabled boolean not null""",
    "aa_job_runner": """
        runner_id text not null, kinds text[] not null, tenant_ids uuid[], hungry boolean not null,
        seen_at timestamp with time zone not null, expires_at timestamp with time zone not null""",
    "aa_audit_log": """
        id bigint not null, occurred_at timestamp with time zone not null, action mdm.audit_action not null,
        actor_principal_id uuid, session_role name not null, tenant_id uuid, object_type text not null, object_id text,
        payload jsonb not null""",
}


@pytest.mark.parametrize("table", COLUMNS)
def test_table_has_the_columns_of_the_model(conn: Connection, table: str) -> None:
    query = """
        select concat_ws(' ', a.attname, format_type(a.atttypid, null), case when a.attnotnull then 'not null' end)
        from pg_attribute a
        where a.attrelid = ('mdm.' || %s)::regclass and a.attnum > 0 and not a.attisdropped
        order by a.attnum
    """
    found = [row[0] for row in conn.execute(query, (table,))]
    assert found == [" ".join(column.split()) for column in COLUMNS[table].split(",")]


@pytest.mark.parametrize(
    ("enum", "words"),
    [
        ("job_status", ["pending", "running", "done", "failed", "dlq"]),
        (
            "audit_action",
            [
                "job_enqueued",
                "job_done",
                "job_dlq",
                "job_replay",
                "job_discard",
                "job_stop",
                "job_kind_changed",
                "email_sent",
            ],
        ),
    ],
)
def test_enum_has_the_words_of_the_specification(conn: Connection, enum: str, words: list[str]) -> None:
    assert value(conn, f"select enum_range(null::mdm.{enum})::text[]") == words


IMPOSSIBLE = [
    ("running", "lease_no = null", "running"),
    ("running", "claimed_by = null", "running"),
    ("running", "claimed_at = null", "running"),
    ("pending", "claimed_by = 'w'", "pending"),
    ("pending", "claimed_at = now()", "pending"),
    ("pending", "heartbeat_at = now()", "pending"),
    ("pending", "status = 'running'", "running"),
    ("running", "status = 'pending'", "pending"),
    ("pending", "completed_at = now()", "completed_at"),
    ("running", "completed_at = now()", "completed_at"),
    ("done", "completed_at = null", "completed_at"),
    ("dlq", "completed_at = null", "completed_at"),
    ("failed", "completed_at = null", "completed_at"),
    ("running", "status = 'done'", "completed_at"),
    ("pending", "payload = '[]'", "payload"),
    ("pending", "payload = 'null'", "payload"),
    ("pending", "attempts = -1", "attempts"),
    ("pending", "max_attempts = 0", "max_attempts"),
    ("pending", "idempotency_key = ''", "idempotency_key"),
    ("pending", "idempotency_key = repeat('x', 256)", "idempotency_key"),
]


@pytest.mark.parametrize(("state", "change", "check"), IMPOSSIBLE)
def test_impossible_row_cannot_be_stored(conn: Connection, state: str, change: str, check: str) -> None:
    make_job(conn, state)
    with pytest.raises(psycopg.errors.CheckViolation) as raised:
        conn.execute(f"update mdm.aa_job set {change}".encode())
    assert raised.value.diag.constraint_name == f"aa_job_{check}_check"


def test_key_and_generation_are_unique_null_tenants_too(conn: Connection) -> None:
    make_job(conn, "pending", idempotency_key="k")
    copy = """
        insert into mdm.aa_job (job_kind, priority, max_attempts, idempotency_key, key_no)
        select job_kind, priority, max_attempts, idempotency_key, key_no + %s from mdm.aa_job
    """
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute(copy, (0,))
    conn.execute(copy, (1,))


def test_nothing_else_writes_to_the_jobs(conn: Connection) -> None:
    """No trigger, no foreign key in either direction (D14)."""
    assert rows(conn, "select tgname from pg_trigger where tgrelid = 'mdm.aa_job'::regclass") == []
    query = "select conname from pg_constraint where contype = 'f' and 'mdm.aa_job'::regclass in (conrelid, confrelid)"
    assert rows(conn, query) == []


def test_storage_leaves_room_and_is_vacuumed_early(conn: Connection) -> None:
    options = dict(
        option.split("=")
        for option in value(conn, "select reloptions from pg_class where oid = 'mdm.aa_job'::regclass")
    )
    assert float(options["autovacuum_vacuum_scale_factor"]) <= 0.01
    assert options["autovacuum_vacuum_cost_delay"] == "0"
    assert int(options["fillfactor"]) < 100
    assert value(conn, "select relpersistence from pg_class where oid = 'mdm.aa_job_runner'::regclass") == "u"


def test_the_audit_is_summarized_early_however_large_it_is(conn: Connection) -> None:
    query = "select option_value from pg_options_to_table(%s) where option_name = %s"
    table, index = (
        value(conn, "select reloptions from pg_class where oid = %s::regclass", name)
        for name in ("mdm.aa_audit_log", "mdm.ix_aa_audit_log_occurred_at")
    )
    assert float(value(conn, query, table, "autovacuum_vacuum_insert_scale_factor")) == 0
    assert int(value(conn, query, table, "autovacuum_vacuum_insert_threshold")) <= 100_000
    assert value(conn, query, index, "autosummarize") == "on"


def test_heartbeats_are_hot(conn: Connection) -> None:
    """No index contains heartbeat_at, and the page has room: an update of it writes no index entry."""
    claimed = make_job(conn, "running")
    query = """
        select u - pg_stat_get_xact_tuples_hot_updated('mdm.aa_job'::regclass), u
        from pg_stat_get_xact_tuples_updated('mdm.aa_job'::regclass) u
    """
    with conn.transaction():
        [(cold, updates)] = conn.execute(query).fetchall()
        for _ in range(5):
            conn.execute("select mdm.extend_jobs(%s, %s)", ([claimed["id"]], [claimed["lease_no"]]))
        assert conn.execute(query).fetchall() == [(cold, updates + 5)]


@pytest.mark.parametrize(
    ("index", "definition"),
    [
        ("ix_aa_job_claim", "(job_kind, priority, available_at, id) WHERE (status = 'pending'::mdm.job_status)"),
        ("ix_aa_job_running", "(job_kind, claimed_at) WHERE (status = 'running'::mdm.job_status)"),
        (
            "uq_aa_job_key",
            "(tenant_id, job_kind, idempotency_key, key_no) NULLS NOT DISTINCT WHERE (idempotency_key IS NOT NULL)",
        ),
    ],
)
def test_index_is_as_the_model_says(conn: Connection, index: str, definition: str) -> None:
    assert str(value(conn, "select pg_get_indexdef(%s::regclass)", f"mdm.{index}")).endswith(definition)


def test_d14_kinds_are_disabled_never_deleted_by_a_function(conn: Connection) -> None:
    query = """
        select proname from pg_proc
        where pronamespace = 'mdm'::regnamespace and prosrc ~* 'delete\\s+from\\s+mdm\\.aa_job_kind'
    """
    assert rows(conn, query) == []


def test_b61_audit_log_is_only_appended_to(conn: Connection) -> None:
    query = """
        select proname from pg_proc
        where pronamespace = 'mdm'::regnamespace and prosrc ~* '(delete\\s+from|update|truncate)\\s+mdm\\.aa_audit_log'
    """
    assert rows(conn, query) == []
    query = "select has_table_privilege('mdm_owner', 'mdm.aa_audit_log', 'update, delete, truncate')"
    assert value(conn, query) is False
