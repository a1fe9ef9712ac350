"""check_tenants: which tenants a runner would wait for in vain (S3.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs import Connection, call, make_tenant

NOWHERE, NOT_OURS = "there is no such tenant", "the login is not bound to it"


def problems(conn: Connection, *tenant_ids: UUID | None) -> dict[UUID, str]:
    found = call(conn, "check_tenants", tenant_ids=list(tenant_ids))
    assert len(found) == len({row["tenant_id"] for row in found}), "a row each"
    return {row["tenant_id"]: row["problem"] for row in found}


def test_check_tenants_names_those_that_do_not_exist(conn: Connection) -> None:
    one, two, unknown = make_tenant(conn), make_tenant(conn), uuid4()
    assert problems(conn, one, two) == {}
    assert problems(conn, unknown, one, unknown) == {unknown: NOWHERE}


def test_check_tenants_names_those_that_the_login_is_not_bound_to(
    conn: Connection, connect: Callable[..., Connection]
) -> None:
    ours, theirs, unknown = make_tenant(conn), make_tenant(conn), uuid4()
    worker = connect(role="mdm_worker")
    assert problems(worker, ours, theirs, unknown) == {unknown: NOWHERE}
    conn.execute(
        "with p as (insert into mdm.aa_principal (name, role_name) values ('bound', 'test_mdm_worker') returning id)"
        " insert into mdm.aa_principal_tenant select p.id, %s from p",
        (ours,),
    )
    assert problems(worker, ours, theirs, unknown) == {theirs: NOT_OURS, unknown: NOT_OURS}
    assert problems(conn, ours, theirs, unknown) == {unknown: NOWHERE}


@pytest.mark.parametrize("tenant_ids", [[], None])
def test_check_tenants_of_none(conn: Connection, tenant_ids: Any) -> None:
    assert call(conn, "check_tenants", tenant_ids=tenant_ids) == []
