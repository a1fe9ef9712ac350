"""rate_limits (S7.1, S7.2, B85): the settings of tenants, malformed ones with their problem."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import Connection, call, make_tenant


def limits(conn: Connection, *kinds: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in call(conn, "rate_limits", kinds=list(kinds or ("email_send",)))]


def test_rate_limits_of_tenants_that_have_some(conn: Connection) -> None:
    setting = {"email_send": {"rps": 2.5, "burst": 10}, "reindex": {"rps": 1, "burst": 1}, "x": {"rps": 1, "burst": 1}}
    limited = sorted(make_tenant(conn, metadata={"rate_limit": setting, "other": 1}) for _ in range(2))
    make_tenant(conn)
    make_tenant(conn, metadata={"rate_limit": {}})
    assert limits(conn, "email_send", "reindex", "email_send") == [
        (tenant_id, *limit)
        for tenant_id in limited
        for limit in (("email_send", 2.5, 10, None), ("reindex", 1.0, 1, None))
    ]


@pytest.mark.parametrize(
    ("setting", "rps", "burst"),
    [
        ({"rps": 0, "burst": 1}, 0, 1),
        ({"rps": 0.001, "burst": 1}, 0.001, 1),
        ({"rps": 1e6, "burst": 1000000}, 1e6, 1000000),
        ({"rps": 1, "burst": 5, "comment": "x"}, 1, 5),
    ],
    ids=repr,
)
def test_b85_these_limits_hold(conn: Connection, setting: Any, rps: float, burst: int) -> None:
    make_tenant(conn, metadata={"rate_limit": {"email_send": setting}})
    assert limits(conn)[0][2:] == (rps, burst, None)


def test_b85_rate_too_small_for_a_double_is_none(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    metadata = '{"rate_limit": {"email_send": {"rps": 1e-400, "burst": 1}}}'
    conn.execute("update mdm.aa_tenant set metadata = %s", (metadata,))
    assert limits(conn) == [(tenant_id, "email_send", 0, 1, None)]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"rps": -1, "burst": 1}, "rps is not within 0 .. 1000000"),
        ({"rps": 1e308, "burst": 1}, "rps is not within 0 .. 1000000"),
        ({"rps": 1000001, "burst": 1}, "rps is not within 0 .. 1000000"),
        ({"rps": "5", "burst": 1}, "rps is not a number"),
        ({"rps": None, "burst": 1}, "rps is not a number"),
        ({"burst": 1}, "rps is not a number"),
        ({}, "rps is not a number"),
        ({"rps": [], "burst": 1}, "rps is not a number"),
        ({"rps": 1}, "burst is not a number"),
        ({"rps": 1, "burst": "many"}, "burst is not a number"),
        ({"rps": 1, "burst": True}, "burst is not a number"),
        ({"rps": 1, "burst": 0}, "burst is not within 1 .. 1000000"),
        ({"rps": 1, "burst": -5}, "burst is not within 1 .. 1000000"),
        ({"rps": 1, "burst": 1e308}, "burst is not within 1 .. 1000000"),
        ({"rps": 1, "burst": 0.5}, "burst is not within 1 .. 1000000"),
        ("x", "not an object"),
        (5, "not an object"),
        (None, "not an object"),
        ([], "not an object"),
    ],
    ids=repr,
)
def test_b85_malformed_limit_has_a_problem_and_stops_no_other(conn: Connection, setting: Any, problem: str) -> None:
    good = {"rps": 1, "burst": 1}
    bad = make_tenant(conn, metadata={"rate_limit": {"email_send": setting, "reindex": good}})
    other = make_tenant(conn, metadata={"rate_limit": {"email_send": good}})
    assert sorted(limits(conn, "email_send", "reindex"), key=repr) == sorted(
        [
            (bad, "email_send", None, None, problem),
            (bad, "reindex", 1.0, 1, None),
            (other, "email_send", 1.0, 1, None),
        ],
        key=repr,
    )


@pytest.mark.parametrize(
    "metadata", [{"rate_limit": "x"}, {"rate_limit": None}, {"rate_limit": [1]}, [], 5, "x"], ids=repr
)
def test_b85_other_metadata_is_no_limit(conn: Connection, metadata: Any) -> None:
    make_tenant(conn, metadata=metadata)
    assert limits(conn) == []


@pytest.mark.parametrize("kinds", [[], None])
def test_rate_limits_of_no_kinds(conn: Connection, kinds: Any) -> None:
    make_tenant(conn, metadata={"rate_limit": {"email_send": {"rps": 1, "burst": 1}}})
    assert call(conn, "rate_limits", kinds=kinds) == []
