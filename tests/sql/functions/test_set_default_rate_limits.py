"""The rate limits of a new tenant (S7.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from jobs import Connection, call, make_kind, make_tenant, refused, value

REQUIRED = ("bulk_import", "email_send", "virus_scan")  # the kinds that require a tenant
DEFAULT = {"rps": 10, "burst": 20}


def metadata(conn: Connection, tenant_id: UUID) -> Any:
    return value(conn, "select metadata from mdm.aa_tenant where id = %s", tenant_id)


def set_defaults(conn: Connection, tenant_id: UUID | None, **parameters: Any) -> int:
    [row] = call(conn, "set_default_rate_limits", tenant_id=tenant_id, **parameters)
    return int(row["set_default_rate_limits"])


def test_set_default_rate_limits_of_the_kinds_that_require_a_tenant(conn: Connection) -> None:
    tenant_id = make_tenant(conn, metadata={"plan": "gold"})
    assert set_defaults(conn, tenant_id) == 3
    assert metadata(conn, tenant_id) == {"plan": "gold", "rate_limit": dict.fromkeys(REQUIRED, DEFAULT)}
    limits = call(conn, "rate_limits", kinds=list(REQUIRED))
    assert {(row["job_kind"], row["rps"], row["burst"], row["problem"]) for row in limits} == {
        (kind, 10.0, 20, None) for kind in REQUIRED
    }


def test_set_default_rate_limits_keeps_what_is_set_and_is_harmless_twice(conn: Connection) -> None:
    own = {"email_send": {"rps": 1, "burst": 1}}
    tenant_id = make_tenant(conn, metadata={"rate_limit": own})
    assert set_defaults(conn, tenant_id) == 2
    once = metadata(conn, tenant_id)
    assert once["rate_limit"]["email_send"] == own["email_send"]
    assert set_defaults(conn, tenant_id) == 0
    assert metadata(conn, tenant_id) == once


@pytest.mark.parametrize("given", ["x", [], None])
def test_b85_set_default_rate_limits_replaces_a_rate_limit_that_is_no_object(conn: Connection, given: Any) -> None:
    tenant_id = make_tenant(conn, metadata={"rate_limit": given})
    assert set_defaults(conn, tenant_id, kinds=["email_send"]) == 1
    assert metadata(conn, tenant_id) == {"rate_limit": {"email_send": DEFAULT}}


def test_set_default_rate_limits_of_named_kinds_with_other_numbers(conn: Connection) -> None:
    tenant_id = make_tenant(conn)
    make_kind(conn, "mine")
    assert set_defaults(conn, tenant_id, kinds=["mine"], rps=0.5, burst=3) == 1
    assert metadata(conn, tenant_id) == {"rate_limit": {"mine": {"rps": 0.5, "burst": 3}}}
    assert set_defaults(conn, tenant_id, kinds=["reindex"], rps=None, burst=None) == 1
    assert metadata(conn, tenant_id)["rate_limit"]["reindex"] == DEFAULT
    assert set_defaults(conn, tenant_id, kinds=[]) == 0


@pytest.mark.parametrize(
    ("parameters", "sqlstate"),
    [
        ({"rps": -1.0}, "MJ005"),
        ({"rps": 1e308}, "MJ005"),
        ({"burst": 0}, "MJ005"),
        ({"kinds": ["nosuch"]}, "MJ003"),
        ({"kinds": [None]}, "MJ003"),
    ],
)
def test_set_default_rate_limits_refuses(conn: Connection, parameters: dict[str, Any], sqlstate: str) -> None:
    tenant_id = make_tenant(conn)
    with refused(sqlstate):
        set_defaults(conn, tenant_id, **parameters)
    assert metadata(conn, tenant_id) == {}


@pytest.mark.parametrize("rps", [float("nan"), float("inf")])
def test_set_default_rate_limits_refuses_what_is_no_number(conn: Connection, rps: float) -> None:
    tenant_id = make_tenant(conn)
    with refused("MJ005"):
        set_defaults(conn, tenant_id, rps=rps)


def test_set_default_rate_limits_of_no_tenant(conn: Connection) -> None:
    for tenant_id in (uuid4(), None):
        with refused("MJ005", match="no tenant"):
            set_defaults(conn, tenant_id)


def test_set_default_rate_limits_of_metadata_that_is_no_object(conn: Connection) -> None:
    tenant_id = make_tenant(conn, metadata=[1])
    with refused("MJ005"):
        set_defaults(conn, tenant_id)


def test_set_default_rate_limits_of_a_bound_login(conn: Connection, connect: Callable[..., Connection]) -> None:
    mine, other = make_tenant(conn), make_tenant(conn)
    conn.execute(
        "with p as (insert into mdm.aa_principal (id, name, kind, role_name)"
        " values (gen_random_uuid(), 'bound', 'service', 'test_mdm_admin') returning id)"
        " insert into mdm.aa_principal_tenant (principal_id, tenant_id) select id, %s from p",
        (mine,),
    )
    admin = connect(role="mdm_admin")
    assert set_defaults(admin, mine) == 3
    with refused("MJ007"):
        set_defaults(admin, other)


def test_set_default_rate_limits_is_the_administrators(conn: Connection, connect: Callable[..., Connection]) -> None:
    tenant_id = make_tenant(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        set_defaults(connect(role="mdm_worker"), tenant_id)
