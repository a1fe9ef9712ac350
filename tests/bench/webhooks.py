"""The scenario webhooks (S2.4): deliveries a second by a real jobrunner with 4 slots to an endpoint on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg
from endpoint import Endpoint, endpoint
from kit import Bench
from tables import settle

SECRET: Final = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
EVENTS_A_COMMIT: Final = 10


def webhooks(bench: Bench) -> None:
    """Events to one endpoint, with the default cap on posts under way to it and with a wider one."""
    events = 500 if bench.quick else 5_000
    for settings in ({}, {"JOBRUNNER_WEBHOOK_PER_ENDPOINT": "32"}):
        cap = settings.get("JOBRUNNER_WEBHOOK_PER_ENDPOINT", "8")
        rate = _deliver(bench, events, settings)
        what = f"{events:,} events, 4 slots, {cap} posts under way at most"
        bench.report("webhooks", what, rate, "posts/s")


def _deliver(bench: Bench, events: int, settings: Mapping[str, str]) -> float:
    """Write the events, then let one process deliver them; deliveries a second, from the first claim to the last."""
    with endpoint() as consumer, bench.database() as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        _fill(conn, consumer, events)
        environ = {"JOBRUNNER_WEBHOOK_ALLOW": "127.0.0.1", **settings}
        with bench.runner(dsn, "--drain", kinds="outbox_dispatch", environ=environ) as process:
            process.wait(600)
        [(delivered, seconds)] = conn.execute(
            """select count(*) filter (where d.status = 'delivered'),
                 extract(epoch from max(d.completed_at) - (
                   select min(j.claimed_at) from mdm.aa_job j where j.job_kind = 'outbox_dispatch'))::float8
               from mdm.aa_webhook_delivery d"""
        ).fetchall()
    if delivered != events or consumer.posts != events:
        raise SystemExit(f"bench: {events} events, {delivered} delivered, {consumer.posts} posts")
    return float(events / seconds)


def _fill(conn: psycopg.Connection[Any], consumer: Endpoint, events: int) -> None:
    """Write the events as business transactions do, some in each commit."""
    [(tenant,)] = conn.execute("insert into mdm.aa_tenant (id) values (gen_random_uuid()) returning id").fetchall()
    conn.execute(
        "insert into mdm.aa_webhook_endpoint (tenant_id, url, secret) values (%s, %s, %s)",
        (tenant, f"http://127.0.0.1:{consumer.port}/hook", SECRET),
    )
    for _ in range(events // EVENTS_A_COMMIT):
        conn.execute(
            """insert into mdm.aa_outbox_event (tenant_id, event_type, object_type, object_id, payload)
               select %s, 'entity.updated', 'entity', n::text, jsonb_build_object('n', n)
               from generate_series(1, %s) n""",
            (tenant, EVENTS_A_COMMIT),
        )
    settle(conn)
