"""Row-level security: a login bound to tenants sees, claims and enqueues theirs only, in definer functions too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from jobs import (
    Connection,
    age,
    call,
    claim,
    claim_one,
    enqueue,
    finish,
    ids,
    job,
    make_job,
    make_tenant,
    recover,
    refused,
    rows,
    snapshot,
    status,
    value,
)
from outbox import all_due, deliveries, make_endpoint, make_event, states, store, take

ROLES = ("mdm_producer", "mdm_worker", "mdm_admin", "mdm_monitor")


@dataclass(frozen=True, slots=True)
class World:
    """Two tenants; the logins of ROLES are bound to the first. `conn` sees everything."""

    conn: Connection
    connect: Callable[..., Connection]
    ours: UUID
    theirs: UUID

    def bound(self, role: str) -> Connection:
        return self.connect(role=role)


@pytest.fixture
def world(conn: Connection, connect: Callable[..., Connection]) -> World:
    ours, theirs = make_tenant(conn), make_tenant(conn)
    for role in ROLES:
        conn.execute(
            "with p as (insert into mdm.aa_principal (name, role_name) values (%s, %s) returning id)"
            " insert into mdm.aa_principal_tenant select p.id, %s from p",
            (f"bound {role}", f"test_{role}", ours),
        )
    return World(conn, connect, ours, theirs)


def one_each(world: World, **parameters: Any) -> tuple[int, int, int]:
    """Enqueue a job of our tenant, of theirs and of the platform."""
    ours, theirs, platform = (
        enqueue(world.conn, tenant_id=tenant, **parameters) for tenant in (world.ours, world.theirs, None)
    )
    return ours, theirs, platform


def test_bound_worker_claims_its_tenant_only(world: World) -> None:
    ours, theirs, platform = one_each(world)
    worker = world.bound("mdm_worker")
    assert ids(claim(worker, limit=10)) == [ours]
    assert [status(world.conn, job_id) for job_id in (theirs, platform)] == ["pending", "pending"]


@pytest.mark.parametrize("asked", ["both", "theirs", "none", "ours"])
def test_bound_worker_cannot_ask_for_more(world: World, asked: str) -> None:
    ours, _, _ = one_each(world)
    tenants = {"both": [world.ours, world.theirs], "theirs": [world.theirs], "none": [], "ours": [world.ours]}[asked]
    expected = [ours] if world.ours in tenants else []
    assert ids(claim(world.bound("mdm_worker"), tenant_ids=tenants, limit=10)) == expected


def test_bound_worker_is_served_from_behind_the_jobs_of_others(world: World) -> None:
    """Jobs that it may not see neither fill its batch nor hide its own, with a floor too."""
    for _ in range(20):
        enqueue(world.conn, tenant_id=world.theirs, priority=1)
    ours = [enqueue(world.conn, tenant_id=world.ours, priority=2) for _ in range(3)]
    worker = world.bound("mdm_worker")
    assert ids(claim(worker, limit=2)) == ours[:2]
    assert ids(claim(worker, limit=2, floor='{"reindex": {"2": "2020-01-01"}}')) == ours[2:]


def test_bound_worker_of_two_tenants_gets_both_in_order(world: World) -> None:
    world.conn.execute(
        "insert into mdm.aa_principal_tenant select id, %s from mdm.aa_principal where role_name = 'test_mdm_worker'",
        (world.theirs,),
    )
    ours, theirs, _ = one_each(world)
    assert ids(claim(world.bound("mdm_worker"), limit=10)) == [ours, theirs]


def test_bound_worker_cannot_end_the_claim_of_another_tenant(world: World) -> None:
    """Even with the right lease the row is not there for it."""
    enqueue(world.conn, tenant_id=world.theirs)
    claimed = claim_one(world.conn)
    worker = world.bound("mdm_worker")
    before = snapshot(world.conn)
    lease = {"job_id": claimed["id"], "lease_no": claimed["lease_no"]}
    for function, more in (
        ("check_lease", {}),
        ("finish_job", {}),
        ("fail_job", {"error": "x"}),
        ("release_job", {}),
    ):
        with refused("MJ001", detail="gone"):
            call(worker, function, **lease, **more)
    leases = {"job_ids": [claimed["id"]], "lease_nos": [claimed["lease_no"]]}
    assert call(worker, "finish_jobs", **leases) == call(worker, "release_jobs", **leases) == []
    assert call(worker, "extend_jobs", **leases) == [{"job_id": claimed["id"], "alive": False}]
    assert snapshot(world.conn) == before


def test_bound_worker_works_its_own_job_off(world: World) -> None:
    job_id = enqueue(world.bound("mdm_producer"), tenant_id=world.ours)
    worker = world.bound("mdm_worker")
    claimed = claim_one(worker)
    call(worker, "extend_jobs", job_ids=[job_id], lease_nos=[claimed["lease_no"]])
    call(worker, "finish_job", job_id=job_id, lease_no=claimed["lease_no"])
    assert status(world.conn, job_id) == "done"


def test_bound_worker_recovers_and_purges_its_tenant_only(world: World) -> None:
    made = one_each(world)
    age(world.conn, *ids(claim(world.conn, limit=3)))
    worker = world.bound("mdm_worker")
    assert recover(worker) == {made[0]: "pending"}
    world.conn.execute("delete from mdm.aa_job")
    done = [make_job(world.conn, "done", tenant_id=tenant)["id"] for tenant in (world.ours, world.theirs, None)]
    world.conn.execute("update mdm.aa_job set completed_at = '2020-01-01'")
    assert value(worker, "select mdm.purge_jobs()") == 1
    assert [status(world.conn, job_id) for job_id in done] == ["gone", "done", "done"]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("whose", ["theirs", "platform"])
def test_bound_producer_cannot_enqueue_for_others(world: World, whose: str, key: str | None) -> None:
    tenant_id = world.theirs if whose == "theirs" else None
    if key:
        enqueue(world.conn, tenant_id=tenant_id, idempotency_key=key)
    before = snapshot(world.conn)
    producer = world.bound("mdm_producer")
    for update in ("ignore", "update"):
        with refused("MJ007", match="may not enqueue for"):
            enqueue(producer, tenant_id=tenant_id, idempotency_key=key, on_conflict=update)
    element = {"job_kind": "reindex", "tenant_id": tenant_id and str(tenant_id), "idempotency_key": key}
    with refused("MJ007", match="element 1"):
        call(producer, "enqueue_jobs", jobs=Jsonb([element]))
    assert snapshot(world.conn) == before


def test_bound_producer_sees_its_tenants_jobs_only(world: World) -> None:
    ours, theirs, platform = one_each(world)
    producer = world.bound("mdm_producer")
    answers = [call(producer, "get_job", job_id=job_id) for job_id in (ours, theirs, platform)]
    assert [len(answer) for answer in answers] == [1, 0, 0]


def test_same_key_of_two_tenants_stays_apart_for_bound_producers(world: World) -> None:
    theirs = enqueue(world.conn, tenant_id=world.theirs, idempotency_key="k")
    ours = enqueue(world.bound("mdm_producer"), tenant_id=world.ours, idempotency_key="k")
    assert ours != theirs


@pytest.mark.parametrize("function", ["replay_job", "discard_job", "stop_job"])
def test_bound_admin_acts_on_its_tenants_jobs_only(world: World, function: str) -> None:
    ours, theirs, platform = (
        make_job(world.conn, "dlq", tenant_id=tenant)["id"] for tenant in (world.ours, world.theirs, None)
    )
    admin = world.bound("mdm_admin")
    call(admin, function, job_id=ours)
    before = snapshot(world.conn)
    for job_id in (theirs, platform):
        with refused("MJ002"):
            call(admin, function, job_id=job_id)
    assert snapshot(world.conn) == before


def test_views_and_counts_show_the_bound_tenant_only(world: World) -> None:
    dead = [make_job(world.conn, "dlq", tenant_id=tenant)["id"] for tenant in (world.ours, world.theirs, None)]
    running = [make_job(world.conn, "running", tenant_id=tenant)["id"] for tenant in (world.ours, world.theirs, None)]
    monitor = world.bound("mdm_monitor")
    assert ids(rows(monitor, "select id from mdm.v_job_dlq")) == dead[:1]
    assert ids(rows(monitor, "select id from mdm.v_job_running")) == running[:1]
    [counts] = rows(monitor, "select * from mdm.v_job_counts where job_kind = 'reindex'")
    assert (counts["dlq"], counts["running"]) == (1, 1)
    history = rows(monitor, "select distinct job_id from mdm.v_job_history order by 1")
    assert [row["job_id"] for row in history] == [dead[0], running[0]]
    assert [len(call(monitor, "find_entries", job_id=job_id)) for job_id in dead] == [2, 0, 0]
    world.conn.execute("update mdm.aa_job set job_kind = 'nope'")
    [violation] = rows(monitor, "select * from mdm.check_job_invariants() where violations > 0")
    assert violation["sample"] == f"{dead[0]}, {running[0]}"


def test_binding_to_no_tenant_is_no_binding(conn: Connection, connect: Callable[..., Connection]) -> None:
    conn.execute("insert into mdm.aa_principal (name, role_name) values ('free', 'test_mdm_worker')")
    made = [enqueue(conn), enqueue(conn, tenant_id=make_tenant(conn))]
    assert ids(claim(connect(role="mdm_worker"), limit=9)) == made


def test_owner_of_the_tables_is_bound_too(world: World) -> None:
    """FORCE: what a definer function runs as sees no more than its caller. A superuser is not bound."""
    one_each(world)
    world.conn.execute("update mdm.aa_principal set role_name = 'test_mdm_owner' where role_name = 'test_mdm_worker'")
    owner = world.bound("mdm_owner")
    assert value(owner, "select count(*) from mdm.aa_job") == 1
    assert owner.execute("update mdm.aa_job set priority = 1").rowcount == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        owner.execute("update mdm.aa_job set tenant_id = %s", (world.theirs,))
    assert value(world.conn, "select count(*) from mdm.aa_job") == 3


def test_nil_tenant_is_no_way_to_the_platforms_jobs(world: World) -> None:
    """The policy lets the nil uuid stand for the platform; binding a login to it must not open it."""
    platform = enqueue(world.conn)
    assert claim(world.bound("mdm_worker"), tenant_ids=[UUID(int=0)], limit=9) == []
    assert job(world.conn, platform)["status"] == "pending"


def test_a_login_is_not_unbound_by_the_end_of_its_tenant(world: World) -> None:
    """No row means all tenants, so none may go by itself."""
    for gone in ("aa_tenant where id = %s", "aa_principal where %s::uuid is not null"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            world.conn.execute(f"delete from mdm.{gone}", (world.ours,))


def test_bound_writers_triggers_enqueue_for_their_tenant(world: World) -> None:
    """What they write needs a job of the platform, for which they may not enqueue."""
    for table in ("aa_outbox_event", "ddm_entity_type", "ddm_entity_type_attribute"):
        world.conn.execute(f"grant select, insert on mdm.{table} to test_mdm_producer")
    writer = world.bound("mdm_producer")
    try:
        make_event(writer, world.ours)
        type_id = value(
            writer,
            "insert into mdm.ddm_entity_type (type_key, is_external_source_target) values ('t', true) returning id",
        )
        writer.execute(
            "insert into mdm.ddm_entity_type_attribute (entity_type_id, attribute_key, searchable)"
            " values (%s, 'a', true)",
            (type_id,),
        )
    finally:
        for table in ("aa_outbox_event", "ddm_entity_type", "ddm_entity_type_attribute"):
            world.conn.execute(f"revoke all on mdm.{table} from test_mdm_producer")
    enqueued = world.conn.execute("select job_kind, tenant_id from mdm.aa_job order by id").fetchall()
    assert enqueued == [(kind, world.ours) for kind in ("outbox_dispatch", "gin_backfill", "index_sync")]


def test_bound_worker_posts_its_tenants_webhooks_only(world: World) -> None:
    for tenant in (world.ours, world.theirs):
        make_endpoint(world.conn, tenant)
        make_event(world.conn, tenant)
    enqueue(world.conn, "outbox_dispatch", tenant_id=world.ours)
    worker = world.bound("mdm_worker")
    claimed = claim_one(worker, "outbox_dispatch")
    [taken] = take(worker, claimed)
    assert str(world.ours) in taken["body"]
    store(worker, claimed, [taken], 500, "no")
    assert call(worker, "enqueue_next_dispatch", job_id=claimed["id"], lease_no=claimed["lease_no"]) != []
    finish(worker, claimed)
    left = rows(world.conn, "select tenant_id from mdm.aa_job where idempotency_key is not null")
    assert left == [{"tenant_id": world.ours}]
    store(world.conn, other := claim_one(world.conn, "outbox_dispatch"), take(world.conn, other))
    assert sorted(states(world.conn)) == ["delivered", "failed"]


def test_bound_worker_leaves_what_a_run_that_it_does_not_see_is_posting(world: World) -> None:
    make_endpoint(world.conn, world.ours)
    make_event(world.conn, world.ours)
    unseen = claim_one(world.conn, "outbox_dispatch")
    assert unseen["tenant_id"] is None
    taken = take(world.conn, unseen)
    enqueue(world.conn, "outbox_dispatch", tenant_id=world.ours)
    worker = world.bound("mdm_worker")
    claimed = claim_one(worker, "outbox_dispatch")
    lease = {"job_id": claimed["id"], "lease_no": claimed["lease_no"]}
    assert take(worker, claimed) == []
    assert call(worker, "enqueue_next_dispatch", **lease) == [{"enqueue_next_dispatch": None}]
    make_event(world.conn, world.ours)
    assert take(worker, claimed, per_endpoint=1) == [], "the endpoint has one post under way"
    world.conn.execute("update mdm.aa_webhook_endpoint set failures = 10")
    world.conn.execute("update mdm.aa_webhook_delivery set available_at = '2020-01-01' where job_id is not null")
    assert value(worker, "select mdm.give_up_deliveries()") == 0
    assert store(world.conn, unseen, taken) == 1


def test_bound_upkeep_looks_after_its_tenants_webhooks_only(world: World) -> None:
    endpoints = [make_endpoint(world.conn, tenant) for tenant in (world.ours, world.theirs)]
    for tenant in (world.ours, world.theirs):
        make_event(world.conn, tenant)
    store(world.conn, claimed := claim_one(world.conn, "outbox_dispatch"), take(world.conn, claimed), 500, "no")
    world.conn.execute("update mdm.aa_job set status = 'done', completed_at = now() where status = 'pending'")
    worker, admin, monitor = (world.bound(role) for role in ("mdm_worker", "mdm_admin", "mdm_monitor"))
    all_due(world.conn)
    assert value(worker, "select mdm.wake_outbox()") == 0
    world.conn.execute("update mdm.aa_webhook_delivery set available_at = '2020-01-01'")
    assert value(worker, "select mdm.wake_outbox()") == 1
    assert rows(world.conn, "select tenant_id from mdm.aa_job where status = 'pending'") == [{"tenant_id": world.ours}]
    world.conn.execute("update mdm.aa_webhook_endpoint set failures = 10")
    assert value(worker, "select mdm.give_up_deliveries()") == 1
    assert value(world.conn, "select mdm.give_up_deliveries()") == 1
    assert [row["endpoint_id"] for row in rows(monitor, "select * from mdm.v_webhook_dlq")] == endpoints[:1]
    assert len(rows(world.conn, "select * from mdm.v_webhook_dlq")) == 2
    assert call(admin, "replay_deliveries", endpoint_id=endpoints[0]) == [{"replay_deliveries": 1}]
    with refused("MJ002"):
        call(admin, "replay_deliveries", endpoint_id=endpoints[1])
    assert {row["endpoint_id"]: row["status"] for row in deliveries(world.conn)} == dict(
        zip(endpoints, ("pending", "dlq"), strict=True)
    )


def test_bound_worker_is_told_its_tenants_rate_limits_only(world: World) -> None:
    world.conn.execute('update mdm.aa_tenant set metadata = \'{"rate_limit": {"reindex": {"rps": 1, "burst": 1}}}\'')
    worker = world.bound("mdm_worker")
    assert [row["tenant_id"] for row in call(worker, "rate_limits", kinds=["reindex"])] == [world.ours]
    assert len(call(world.conn, "rate_limits", kinds=["reindex"])) == 2


def test_bound_upkeep_does_not_pass_for_that_of_all(world: World) -> None:
    """Nobody looks after the jobs of the others: whoever watches must see it (B12)."""
    worker = world.bound("mdm_worker")
    for upkeep in ("recover_stale_jobs", "purge_jobs"):
        call(worker, upkeep)
    assert rows(world.conn, "select * from mdm.aa_job_upkeep") == []


def test_bound_runner_serves_no_others_jobs(world: World) -> None:
    """explain_job says so, also where the runner has not been told of tenants."""
    ours, theirs, _ = one_each(world)
    worker = world.bound("mdm_worker")
    for asked, served in ((None, [ours]), ([world.ours, world.theirs], [ours]), ([world.theirs], [])):
        call(worker, "announce_runner", runner_id="r", kinds=["reindex"], tenant_ids=asked)
        live = [
            job_id
            for job_id in (ours, theirs)
            if "no live runner" not in {row["reason"] for row in call(world.conn, "explain_job", job_id=job_id)}
        ]
        assert live == served


def test_bound_producer_is_not_told_which_tenants_exist(world: World) -> None:
    producer = world.bound("mdm_producer")
    for tenant in (world.theirs, uuid4()):
        with refused("MJ007", match="may not enqueue for"):
            enqueue(producer, tenant_id=tenant)
