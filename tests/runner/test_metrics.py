"""The meter: what a run counts for, once the database has accepted its end (S12, B95, B96)."""

from __future__ import annotations

import threading

import prometheus_client
import psycopg
import pytest
from prometheus_client import CollectorRegistry

from cluster import crash
from jobrunner import devserver, schema
from jobrunner.devserver import Server
from jobrunner.errors import PermanentError, Snooze
from jobrunner.exporter import make_registry
from jobrunner.job import Context, Handler, Job
from jobrunner.metrics import OTHER, OUTCOMES, RUN_BUCKETS, WAIT_BUCKETS, PrometheusMeter
from jobs import Connection, enqueue, make_due, make_kind, make_tenant, recover, status
from runnerkit import drain, eventually
from scraped import series, value

KIND = "reindex"


def counted(dsn: str, handler: Handler, kinds: tuple[str, ...] = (KIND,)) -> str:
    """Drain with a handler; what an exporter would show then."""
    registry = make_registry()
    drain(dsn, dict.fromkeys(kinds, handler), meter=PrometheusMeter(registry, kinds))
    return prometheus_client.generate_latest(registry).decode()


def attempts(text: str, kind: str = KIND) -> dict[str, float]:
    """The outcomes that were counted."""
    found = {outcome: value(text, "mdm_jobs_attempts_total", kind=kind, outcome=outcome) for outcome in OUTCOMES}
    return {outcome: count for outcome, count in found.items() if count}


def noop(job: Job, ctx: Context) -> None:
    """Nothing."""


def test_meter_counts_jobs_that_are_done(conn: Connection, dsn: str) -> None:
    for _ in range(3):
        enqueue(conn)
    text = counted(dsn, noop)
    assert attempts(text) == {"done": 3}
    for name in ("claim_latency", "wait", "processing"):
        assert value(text, f"mdm_jobs_{name}_seconds_count", kind=KIND) == 3


def test_meter_measures_from_created_and_from_due(conn: Connection, dsn: str) -> None:
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, created_at, available_at)"
        " values ('reindex', 1, 1, clock_timestamp() - interval '100 s', clock_timestamp() - interval '10 s')"
    )
    text = counted(dsn, noop)
    latency = value(text, "mdm_jobs_claim_latency_seconds_sum", kind=KIND)
    waited = value(text, "mdm_jobs_wait_seconds_sum", kind=KIND)
    assert latency is not None
    assert waited is not None
    assert 100 <= latency < 160
    assert 10 <= waited < 70


def test_meter_does_not_count_time_before_a_job_was_made(conn: Connection, dsn: str) -> None:
    enqueue(conn, available_at="1990-01-01T00:00:00Z")
    waited = value(counted(dsn, noop), "mdm_jobs_wait_seconds_sum", kind=KIND)
    assert waited is not None
    assert 0 <= waited < 60


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError("x"), "failed"), (PermanentError("x"), "dlq"), (Snooze(60, "x"), "released")],
)
def test_meter_counts_each_outcome(conn: Connection, dsn: str, error: Exception, outcome: str) -> None:
    def handler(job: Job, ctx: Context) -> None:
        raise error

    enqueue(conn)
    text = counted(dsn, handler)
    assert attempts(text) == {outcome: 1}
    assert value(text, "mdm_jobs_processing_seconds_count", kind=KIND) == 1


@pytest.mark.parametrize("writes", [False, True])
def test_b96_lost_lease_is_no_success(conn: Connection, dsn: str, writes: bool) -> None:
    """The handler was good, but recovery took the job: it counts as lost, and once as done when it ran again."""
    runs: list[int] = []

    def handler(job: Job, ctx: Context) -> None:
        if writes:
            ctx.connection()
        runs.append(job.id)
        if len(runs) == 1:
            conn.execute("update mdm.aa_job set claimed_at = claimed_at - interval '1 day' where id = %s", (job.id,))
            assert recover(conn) == {job.id: "pending"}

    job_id = enqueue(conn)
    text = counted(dsn, handler)
    assert attempts(text) == {"lost": 1, "done": 1}
    assert value(text, "mdm_jobs_lost_leases_total", kind=KIND) == 1
    assert status(conn, job_id) == "done"


def test_b96_commit_that_is_refused_is_no_success(fresh_dsn: str) -> None:
    """A deferred constraint refuses the commit after a good run."""
    with psycopg.connect(fresh_dsn, autocommit=True) as conn:
        conn.execute("create table public.effect (id int primary key deferrable initially deferred)")

        def handler(job: Job, ctx: Context) -> None:
            for _ in range(2):
                ctx.connection().execute("insert into public.effect values (1)")

        job_id = enqueue(conn)
        text = counted(fresh_dsn, handler)
        assert attempts(text) == {"failed": 1}
        assert status(conn, job_id) == "pending"


@pytest.mark.one_leg("15")
@pytest.mark.parametrize(("writes", "outcome"), [(False, {"done": 1}), (True, {"failed": 1})])
def test_b96_server_that_dies_before_the_end_of_a_run_is_no_success(
    own_server: Server, writes: bool, outcome: dict[str, float]
) -> None:
    """The handler was good. Nothing counts while the server is away; then once, as what the server has accepted."""
    dsn = own_server.dsn("mdm")
    schema.migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("alter system set synchronous_commit = on")  # a claim that was committed is not lost
        conn.execute("select pg_reload_conf()")
        eventually(lambda: conn.execute("show synchronous_commit").fetchone() == ("on",))
        job_id = enqueue(conn)
    registry = make_registry()
    meter = PrometheusMeter(registry, [KIND])
    seen: list[dict[str, float]] = []

    def shown() -> str:
        return prometheus_client.generate_latest(registry).decode()

    def handler(job: Job, ctx: Context) -> None:
        if seen:
            return
        if writes:
            ctx.connection().execute("create table effect ()")
        crash(own_server)
        restarting.start()

    def restart() -> None:
        """Once the handler has ended, and its job cannot."""
        eventually(lambda: value(shown(), "mdm_jobs_processing_seconds_count", kind=KIND) == 1)
        seen.append(attempts(shown()))
        devserver.start(own_server.base, own_server.bin)

    restarting = threading.Thread(target=restart)
    drain(dsn, {KIND: handler}, meter=meter)
    restarting.join()
    assert seen == [{}]
    assert attempts(shown()) == outcome
    with psycopg.connect(dsn, autocommit=True) as conn:
        if writes:
            make_due(conn, job_id)
        drain(dsn, {KIND: handler}, meter=meter)
        assert status(conn, job_id) == "done"
    assert attempts(shown()) == {"done": 1, **outcome}


def test_s75_rate_limit_hits_are_counted(conn: Connection, dsn: str) -> None:
    tenant = make_tenant(conn, metadata={"rate_limit": {KIND: {"rps": 0.001, "burst": 1}}})
    for _ in range(4):
        enqueue(conn, tenant_id=tenant)
    text = counted(dsn, noop)
    assert attempts(text) == {"done": 1}
    hits = value(text, "mdm_jobs_rate_limited_total", kind=KIND)
    assert hits is not None
    assert hits >= 3


def test_recoveries_are_counted(conn: Connection, dsn: str) -> None:
    enqueue(conn)
    conn.execute("select mdm.claim_job('w', '{reindex}')")
    conn.execute("update mdm.aa_job set claimed_at = claimed_at - interval '1 day'")
    text = counted(dsn, noop)
    assert value(text, "mdm_jobs_recovered_total", outcome="pending") == 1
    assert attempts(text) == {"done": 1}


def test_b95_labels_of_counters_are_kind_and_outcome_only(conn: Connection, dsn: str) -> None:
    """Many tenants, many errors, many kinds: the number of series does not grow."""
    kinds = tuple(make_kind(conn, f"kind_{number}", max_attempts=1) for number in range(4))

    def handler(job: Job, ctx: Context) -> None:
        raise ValueError(f"error {job.id}")

    few = len(series(counted(dsn, handler, kinds)))
    for number in range(200):
        enqueue(conn, kinds[number % 4], tenant_id=make_tenant(conn))
    text = counted(dsn, handler, kinds)
    assert sum(attempts(text, kind)["dlq"] for kind in kinds) == 200
    histograms = 3 * 4 * (max(len(RUN_BUCKETS), len(WAIT_BUCKETS)) + 3)
    assert len(series(text)) <= few + histograms
    labels = {name for key, found in series(text) if key.startswith("mdm_jobs") for name, _ in found}
    assert labels <= {"kind", "outcome", "le", "version", "schema_version"}


def test_b95_unknown_kinds_fold() -> None:
    registry = CollectorRegistry()
    meter = PrometheusMeter(registry, [KIND])
    for number in range(50):
        meter.ended([f"junk_{number}"], "done")
        meter.ran(f"junk_{number}", 1.0)
    text = prometheus_client.generate_latest(registry).decode()
    assert value(text, "mdm_jobs_attempts_total", kind=OTHER, outcome="done") == 50
    assert {dict(labels).get("kind") for _, labels in series(text)} - {None} == {KIND, OTHER}


def test_every_series_of_a_kind_is_there_from_the_start() -> None:
    registry = CollectorRegistry()
    PrometheusMeter(registry, [KIND])
    text = prometheus_client.generate_latest(registry).decode()
    assert [value(text, "mdm_jobs_attempts_total", kind=KIND, outcome=each) for each in OUTCOMES] == [0.0] * 6
