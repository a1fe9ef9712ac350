"""mdm.settle_index_status: a build whose job died without a word is failed in the end (S2.7, S2.8)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from entities import make_type
from jobs import Connection, age, call, claim_one, finish, make_due, make_tenant, recover, rows, status, value

Connect = Callable[..., Connection]
KINDS = ("index_sync", "gin_backfill")


@pytest.fixture
def thing(conn: Connection) -> UUID:
    """A type that wants both sorts of index, and whose jobs are not done."""
    thing = make_type(conn, "thing", searchable=["name"])
    conn.execute("update mdm.ddm_entity_type set is_external_source_target = true")
    return thing


def begin(conn: Connection) -> None:
    """Let every job that waits come as far as the build."""
    for kind in KINDS:
        claimed = claim_one(conn, kind)
        call(conn, "sync_index", job_id=claimed["id"], lease_no=claimed["lease_no"])


def states(conn: Connection) -> tuple[str, str]:
    return (
        value(conn, "select index_status from mdm.ddm_entity_type_attribute"),
        value(conn, "select gin_index_status from mdm.ddm_entity_type"),
    )


def test_build_under_way_or_to_be_retried_is_left_alone(conn: Connection, connect: Connect, thing: UUID) -> None:
    begin(conn)
    assert value(connect(role="mdm_worker"), "select mdm.settle_index_status()") == 0
    conn.execute("update mdm.aa_job set available_at = clock_timestamp() + interval '1 hour'")
    for row in rows(conn, "select id, lease_no from mdm.aa_job"):
        call(conn, "fail_job", job_id=row["id"], lease_no=row["lease_no"], error="broken")
    assert value(conn, "select mdm.settle_index_status()") == 0
    assert states(conn) == ("building", "building")


def test_killed_three_times_is_failed_by_the_cleanup(conn: Connection, thing: UUID) -> None:
    ids = [row["id"] for row in rows(conn, "select id from mdm.aa_job")]
    for _ in range(3):
        make_due(conn, *ids)
        begin(conn)
        age(conn, *ids)
        recover(conn)
    assert {status(conn, job_id) for job_id in ids} == {"dlq"}
    assert states(conn) == ("building", "building")
    conn.execute("call mdm.cleanup_jobs()")
    assert states(conn) == ("failed", "failed")
    assert "ended without a result" in value(conn, "select index_error from mdm.ddm_entity_type_attribute")


def test_job_of_another_attribute_does_not_count(conn: Connection, thing: UUID) -> None:
    begin(conn)
    conn.execute("delete from mdm.aa_job where job_kind = 'index_sync'")
    make_type(conn, "other", searchable=["name"])
    assert value(conn, "select mdm.settle_index_status()") == 1


def test_what_is_not_building_is_left_alone(conn: Connection, thing: UUID) -> None:
    for kind in KINDS:
        finish(conn, claim_one(conn, kind))
    assert value(conn, "select mdm.settle_index_status()") == 0
    assert states(conn) == ("none", "none")


def test_login_that_is_bound_to_tenants_does_not_see_the_jobs_and_changes_nothing(
    conn: Connection, connect: Connect, thing: UUID
) -> None:
    begin(conn)
    bound = connect(role="mdm_worker")
    conn.execute(
        """with p as (insert into mdm.aa_principal (id, name, kind, role_name)
                      values (gen_random_uuid(), 'bound', 'service', 'test_mdm_worker') returning id)
           insert into mdm.aa_principal_tenant select p.id, %s from p""",
        (make_tenant(conn, "one"),),
    )
    assert value(bound, "select mdm.settle_index_status()") == 0
    assert states(conn) == ("building", "building")


def test_row_that_a_steward_holds_is_passed_over(conn: Connection, connect: Connect, thing: UUID) -> None:
    begin(conn)
    conn.execute("delete from mdm.aa_job")
    steward = connect(autocommit=False)
    steward.execute("select from mdm.ddm_entity_type_attribute for update")
    conn.execute("set lock_timeout = '1s'")
    assert value(conn, "select mdm.settle_index_status()") == 1
    assert states(conn) == ("building", "failed")
    steward.commit()
    assert value(conn, "select mdm.settle_index_status()") == 1
    assert states(conn) == ("failed", "failed")
