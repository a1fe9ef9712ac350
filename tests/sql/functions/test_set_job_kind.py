"""set_job_kind (S2.9, S6.2, D5, D7, D8, D14, D15): registering, changing, validating."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from jobs import Connection, Row, audit, call, changes, make_kind, refused, rows, snapshot


def kind(conn: Connection, name: str) -> Row:
    [row] = rows(conn, "select * from mdm.aa_job_kind where job_kind = %s", name)
    return row


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def test_d14_new_kind_has_the_defaults(conn: Connection) -> None:
    call(conn, "set_job_kind", job_kind="new")
    assert kind(conn, "new") == {
        "job_kind": "new",
        "description": "",
        "base_delay": timedelta(seconds=30),
        "max_delay": hours(24),
        "jitter": 0.1,
        "max_attempts": 10,
        "priority": 100,
        "stale_ttl": timedelta(minutes=15),
        "handler_timeout": None,
        "retention_done": hours(168),
        "retention_dlq": None,
        "retention_failed": None,
        "audit_level": "full",
        "tenant_required": False,
        "redact": [],
        "paused_until": None,
        "paused_reason": None,
        "enabled": True,
    }


SEEDED = [
    # kind, base, cap, attempts, priority, stale_ttl (min), retention (h), audit, tenant
    ("email_send", 30, hours(24), 10, 50, 5, 720, "full", True),
    ("bulk_import", 60, hours(6), 5, 150, 60, 720, "full", True),
    ("reindex", 30, hours(6), 5, 120, 30, 168, "full", False),
    ("outbox_dispatch", 10, hours(1), 10, 80, 5, 24, "exceptions", False),
    ("cleanup_jobs", 30, hours(5 / 60), 3, 10, 10, 24, "exceptions", False),
    ("virus_scan", 30, hours(6), 8, 90, 10, 168, "full", True),
    ("index_sync", 300, hours(6), 3, 200, 120, 720, "full", False),
    ("gin_backfill", 300, hours(6), 3, 200, 240, 720, "full", False),
]


@pytest.mark.parametrize("expected", SEEDED, ids=lambda expected: expected[0])
def test_s2_seeded_kinds_are_as_the_data_model_says(conn: Connection, expected: Any) -> None:
    row = kind(conn, expected[0])
    found = (
        row["job_kind"],
        row["base_delay"].total_seconds(),
        row["max_delay"],
        row["max_attempts"],
        row["priority"],
        row["stale_ttl"].total_seconds() / 60,
        row["retention_done"].total_seconds() / 3600,
        row["audit_level"],
        row["tenant_required"],
    )
    assert found == expected
    assert (row["jitter"], row["retention_dlq"], row["retention_failed"]) == (0.1, None, None)
    assert (row["enabled"], row["redact"]) == (True, ["text", "html"] if row["job_kind"] == "email_send" else [])


def test_there_are_eight_kinds(conn: Connection) -> None:
    assert len(rows(conn, "select from mdm.aa_job_kind")) == len(SEEDED) == 8


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({}, {}),
        ({"priority": -5}, {"priority": -5}),
        ({"max_attempts": 2**31 - 1}, {"max_attempts": 2**31 - 1}),
        ({"jitter": 0}, {"jitter": 0.0}),
        ({"jitter": 1}, {"jitter": 1.0}),
        (
            {"base_delay": "1 second", "max_delay": "1 second"},
            {"base_delay": hours(1 / 3600), "max_delay": hours(1 / 3600)},
        ),
        ({"max_delay": "87600 hours"}, {"max_delay": hours(87600)}),
        ({"max_delay": "2 days"}, {"max_delay": hours(48)}),
        ({"stale_ttl": "15 seconds"}, {"stale_ttl": timedelta(seconds=15)}),
        ({"stale_ttl": "PT20M"}, {"stale_ttl": timedelta(minutes=20)}),
        ({"handler_timeout": "90 seconds"}, {"handler_timeout": timedelta(seconds=90)}),
        ({"retention_done": None, "retention_dlq": "30 days"}, {"retention_done": None, "retention_dlq": hours(720)}),
        ({"audit_level": "exceptions"}, {"audit_level": "exceptions"}),
        ({"tenant_required": True, "enabled": False}, {"tenant_required": True, "enabled": False}),
        ({"redact": ["a", "b"], "description": "for people"}, {"redact": ["a", "b"], "description": "for people"}),
    ],
    ids=repr,
)
def test_set_job_kind_changes_what_is_given_and_nothing_else(conn: Connection, settings: Row, changed: Row) -> None:
    before = kind(conn, "reindex")
    make_kind(conn, "reindex", **settings)
    assert changes(before, kind(conn, "reindex")) == changed


@pytest.mark.parametrize("name", ["base_delay", "max_delay", "stale_ttl", "handler_timeout", "retention_done"])
def test_d7_intervals_are_stored_in_hours_never_days(conn: Connection, name: str) -> None:
    conn.execute("set timezone = 'Europe/Berlin'")
    make_kind(conn, "new", max_delay="40 days")
    make_kind(conn, "new", **{name: "1 month 1 day 1 hour" if name == "retention_done" else "40 days"})
    query = "select {}::text ~ 'day|mon' from mdm.aa_job_kind where job_kind = 'new'"
    assert conn.execute(query.format(name).encode()).fetchall() == [(False,)]


@pytest.mark.parametrize(
    "settings",
    [
        {"base_delay": "0"},
        {"base_delay": "-1 second"},
        {"base_delay": "25 hours"},
        {"base_delay": "soon"},
        {"max_delay": "29 seconds"},
        {"max_delay": "87601 hours"},
        {"max_delay": "178000000 years"},
        {"max_delay": "infinity"},
        {"max_delay": None},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": "NaN"},
        {"jitter": "Infinity"},
        {"jitter": "much"},
        {"max_attempts": 0},
        {"max_attempts": 2**31},
        {"max_attempts": 1.5},
        {"max_attempts": None},
        {"priority": "high"},
        {"priority": None},
        {"priority": -(2**31) - 1},
        {"stale_ttl": "14 seconds"},
        {"stale_ttl": "0"},
        {"stale_ttl": None},
        {"stale_ttl": "87601 hours"},
        {"handler_timeout": "0"},
        {"handler_timeout": "-1 hour"},
        {"handler_timeout": "87601 hours"},
        {"retention_done": "876001 hours"},
        {"retention_dlq": "876001 hours"},
        {"retention_failed": "876001 hours"},
        {"audit_level": "none"},
        {"audit_level": None},
        {"tenant_required": "perhaps"},
        {"enabled": None},
        {"redact": None},
        {"redact": "x"},
        {"description": None},
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["reindex", "new"])
def test_set_job_kind_refuses_a_bad_value(conn: Connection, name: str, settings: Row) -> None:
    before = rows(conn, "select * from mdm.aa_job_kind order by 1")
    with refused("MJ005", match=f"bad setting for kind {name}"):
        make_kind(conn, name, **settings)
    assert rows(conn, "select * from mdm.aa_job_kind order by 1") == before
    assert snapshot(conn) == []


@pytest.mark.parametrize("name", ["", "Reindex", "9lives", "a b", "a;b", "_x", "a" * 64, "é", "a\n", None])
def test_set_job_kind_refuses_a_bad_name(conn: Connection, name: str | None) -> None:
    with refused("MJ005", match="bad setting for kind"):
        call(conn, "set_job_kind", job_kind=name)
    assert len(rows(conn, "select from mdm.aa_job_kind")) == 8


@pytest.mark.parametrize("name", ["a", "a" * 63, "a.b:c-d_e9"])
def test_set_job_kind_accepts_these_names(conn: Connection, name: str) -> None:
    make_kind(conn, name)
    assert kind(conn, name)["priority"] == 100


@pytest.mark.parametrize("setting", ["job_kind", "paused_until", "paused_reason", "max_attempt", "Priority", ""])
def test_set_job_kind_refuses_an_unknown_setting(conn: Connection, setting: str) -> None:
    with refused("MJ005", match=f"unknown setting '{setting}'"):
        make_kind(conn, "reindex", **{setting: None})


@pytest.mark.parametrize("settings", ["null", "[]", '"x"', "5"])
def test_set_job_kind_wants_an_object(conn: Connection, settings: str) -> None:
    with refused("MJ005", match="p_settings is not a JSON object"):
        call(conn, "set_job_kind", job_kind="reindex", settings=settings)


def test_d13_null_settings_are_none(conn: Connection) -> None:
    before = kind(conn, "reindex")
    call(conn, "set_job_kind", job_kind="reindex", settings=None, actor_principal_id=None)
    call(conn, "set_job_kind", job_kind="new", settings=None)
    assert kind(conn, "reindex") == before
    assert kind(conn, "new")["max_attempts"] == 10
    assert audit(conn, "new")[-1]["payload"] == {}


def test_d15_change_is_audited(conn: Connection) -> None:
    actor = uuid4()
    settings = {"priority": 7, "retention_done": None, "redact": ["a"]}
    call(conn, "set_job_kind", job_kind="reindex", settings=Jsonb(settings), actor_principal_id=actor)
    [row] = audit(conn, "reindex")
    assert (row["action"], row["object_type"], row["tenant_id"]) == ("job_kind_changed", "job_kind", None)
    assert (row["actor_principal_id"], row["payload"]) == (actor, {**settings, "retention_done": "null"})


def test_pause_survives_a_change_of_settings(conn: Connection) -> None:
    call(conn, "pause_kind", job_kind="reindex", until="2090-01-01 00:00+00", reason="why")
    before = kind(conn, "reindex")
    make_kind(conn, "reindex", priority=1)
    assert changes(before, kind(conn, "reindex")) == {"priority": 1}
