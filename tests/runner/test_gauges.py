"""The gauges: read seldom, shown at once, bounded, 0 when drained (S12.1, D18, B95, B97)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from time import monotonic

import prometheus_client
import psycopg
import pytest
from prometheus_client import CollectorRegistry

from jobrunner import gauges as gauges_module
from jobrunner.db.connect import Target
from jobrunner.db.metrics import Gauge, job_metrics
from jobrunner.db.session import Session
from jobrunner.exporter import gauges
from jobrunner.gauges import FRESH_SECONDS, GONE_SECONDS, KINDS_MAX, PATIENCE_SECONDS, TENANTS_MAX, Gauges
from jobs import Connection, claim_one, enqueue, finish, make_job, make_tenant
from runnerkit import eventually
from scraped import series, value

pytestmark = pytest.mark.one_leg("15")

PENDING = "mdm_jobs_pending"


class Source:
    """A database that says what it is told to say; counts how often it is asked."""

    def __init__(self) -> None:
        self.found: list[Gauge] = []
        self.error: psycopg.Error | None = None
        self.reads = 0
        self.held = threading.Event()
        self.held.set()
        self.now = 1000.0

    def read(self) -> list[Gauge]:
        self.reads += 1
        self.held.wait(60)
        if self.error is not None:
            raise self.error
        return self.found

    def clock(self) -> float:
        return self.now


Make = Callable[..., Gauges]


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def make(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make gauges of the source, closed at the end; a scrape waits for every reading."""
    monkeypatch.setattr(gauges_module, "PATIENCE_SECONDS", 60.0)
    made: list[Gauges] = []

    def one(tenant_label: bool = True) -> Gauges:
        made.append(Gauges(source.read, tenant_label=tenant_label, clock=source.clock))
        return made[-1]

    yield one
    for each in made:
        each.close(source.held.set)


def text(collector: Gauges) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return prometheus_client.generate_latest(registry).decode()


def test_gauges_show_what_was_read(source: Source, make: Make) -> None:
    source.found = [Gauge(PENDING, "t", "reindex", 3.0), Gauge(PENDING, None, "reindex", 1.0)]
    shown = text(make())
    assert value(shown, PENDING, tenant="t", kind="reindex") == 3
    assert value(shown, PENDING, tenant="", kind="reindex") == 1
    assert value(shown, "mdm_jobs_database_up") == 1


def test_gauges_without_tenant_label_add_up(source: Source, make: Make) -> None:
    source.found = [Gauge(PENDING, "t", "reindex", 3.0), Gauge(PENDING, None, "reindex", 1.0)]
    assert value(text(make(tenant_label=False)), PENDING, kind="reindex") == 4


def test_b97_drained_series_shows_0(source: Source, make: Make) -> None:
    source.found = [Gauge(PENDING, "t", "reindex", 3.0), Gauge("mdm_jobs_oldest_due_seconds", None, "reindex", 9.0)]
    collector = make()
    text(collector)
    source.found = [Gauge("mdm_jobs_oldest_due_seconds", None, "reindex", 0.0)]
    source.now += FRESH_SECONDS
    assert value(text(collector), PENDING, tenant="t", kind="reindex") == 0


def test_b97_scrapes_at_the_same_time_read_once(source: Source, make: Make) -> None:
    collector = make()
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: list(collector.collect()), range(50)))
    assert source.reads == 1
    source.now += FRESH_SECONDS
    list(collector.collect())
    assert source.reads == 2


def test_b97_scrape_does_not_wait_for_a_slow_reading(
    source: Source, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.found = [Gauge(PENDING, None, "reindex", 1.0)]
    collector = make()
    assert value(text(collector), PENDING, tenant="", kind="reindex") == 1
    monkeypatch.setattr(gauges_module, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    source.held.clear()
    source.now += FRESH_SECONDS
    started = monotonic()
    shown = text(collector)
    assert monotonic() - started < 10
    assert value(shown, PENDING, tenant="", kind="reindex") == 1
    assert value(shown, "mdm_jobs_gauges_age_seconds") == FRESH_SECONDS


def test_slow_reading_is_made_less_often(source: Source, make: Make) -> None:
    collector = make()

    def slow() -> list[Gauge]:
        source.reads += 1
        source.now += 3
        return []

    collector._read = slow
    collector.refresh()
    source.now += FRESH_SECONDS
    list(collector.collect())
    assert source.reads == 1


def test_gauges_of_a_database_that_is_away(source: Source, make: Make) -> None:
    source.found = [Gauge(PENDING, None, "reindex", 1.0)]
    collector = make()
    text(collector)
    source.error = psycopg.OperationalError("gone")
    source.now += FRESH_SECONDS
    shown = text(collector)
    assert value(shown, "mdm_jobs_database_up") == 0
    assert value(shown, PENDING, tenant="", kind="reindex") == 1
    source.now += GONE_SECONDS
    shown = text(collector)
    assert value(shown, "mdm_jobs_database_up") == 0
    assert value(shown, PENDING, tenant="", kind="reindex") is None
    source.error = None
    source.now += FRESH_SECONDS
    assert value(text(collector), "mdm_jobs_database_up") == 1


def test_b95_tenants_and_kinds_are_bounded(source: Source, make: Make) -> None:
    source.found = [Gauge(PENDING, f"t{number}", "reindex", 1.0) for number in range(TENANTS_MAX + 50)]
    source.found += [Gauge("mdm_jobs_oldest_due_seconds", None, f"k{number}", 1.0) for number in range(KINDS_MAX + 50)]
    shown = text(make())
    assert value(shown, PENDING, tenant="other", kind="reindex") == 50
    assert len(series(shown)) <= TENANTS_MAX + 1 + KINDS_MAX + 1 + 2


def test_gauges_of_the_real_database(conn: Connection, dsn: str) -> None:
    tenant = make_tenant(conn)
    make_job(conn, "dlq", "index_sync")
    enqueue(conn, tenant_id=tenant)
    with gauges(Target(dsn), tenant_label=True) as collector:
        eventually(lambda: value(text(collector), PENDING, tenant=str(tenant), kind="reindex") == 1)
        finish(conn, claim_one(conn))
        collector.refresh()
        shown = text(collector)
    assert value(shown, PENDING, tenant=str(tenant), kind="reindex") == 0
    assert value(shown, "mdm_jobs_dlq", tenant="", kind="index_sync") == 1
    assert value(shown, "mdm_jobs_oldest_due_seconds", kind="reindex") == 0
    assert value(shown, "mdm_jobs_live_runners", kind="reindex") == 0


def test_every_metric_of_the_database_is_known_to_the_exporter(conn: Connection, dsn: str) -> None:
    for state in ("pending", "running", "dlq"):
        make_job(conn, state)
        conn.execute("update mdm.aa_job set available_at = '2100-01-01Z' where status = 'pending'")
    conn.execute("call mdm.cleanup_jobs()")
    session = Session(Target(dsn), "test")
    names = {each.metric for each in session.run(job_metrics())}
    session.close()
    with gauges(Target(dsn), tenant_label=False) as collector:
        assert names == {family.name for family in collector.describe()}


@pytest.mark.slow
def test_b97_scrape_is_quick_with_a_million_rows(fresh_dsn: str, connect: Callable[..., Connection]) -> None:
    """1,000,000 done rows and 2,000 pending ones of 500 tenants; three exporters, scraped at the same moment."""
    conn = connect(dsn=fresh_dsn)
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, status, completed_at)"
        " select 'reindex', 1, 1, 'done', clock_timestamp() from generate_series(1, 1000000)"
    )
    conn.execute(
        "insert into mdm.aa_job (job_kind, priority, max_attempts, tenant_id)"
        " select 'reindex', 1, 1, md5((n % 500)::text)::uuid from generate_series(1, 2000) n"
    )
    conn.execute("analyze mdm.aa_job")
    with ExitStack() as stack:
        exporters = [stack.enter_context(gauges(Target(fresh_dsn), tenant_label=True)) for _ in range(3)]
        together = Barrier(len(exporters))

        def scrape(collector: Gauges) -> tuple[float, str]:
            together.wait(60)
            started = monotonic()
            shown = text(collector)
            return monotonic() - started, shown

        with ThreadPoolExecutor(len(exporters)) as pool:
            first = list(pool.map(scrape, exporters))
            for each in exporters:
                eventually(lambda each=each: value(text(each), "mdm_jobs_database_up") == 1)
            scrapes = [found for _ in range(10) for found in pool.map(scrape, exporters)]
    times = sorted(seconds for seconds, _ in first + scrapes)
    assert times[len(times) // 2] < 0.5
    pending = [{key: found for key, found in series(shown).items() if key[0] == PENDING} for _, shown in scrapes]
    assert all(sum(each.values()) == 2000 for each in pending)
    assert all(each == pending[0] for each in pending), "every exporter shows the same: max by, not sum (D18)"
