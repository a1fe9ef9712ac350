"""The HTTP server of the metrics: /metrics, /healthz, /readyz. It listens on 127.0.0.1 unless told otherwise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, cast

import prometheus_client
from prometheus_client import CollectorRegistry, disable_created_metrics, exposition

from jobrunner import __version__, schema
from jobrunner.db.connect import Target
from jobrunner.db.metrics import job_metrics
from jobrunner.db.session import Session
from jobrunner.errors import UsageError
from jobrunner.gauges import Gauges
from jobrunner.logs import event
from jobrunner.metrics import Meter, PrometheusMeter

REQUEST_SECONDS: Final = 5.0  # a client that sends or takes nothing for so long is dropped
TEXT: Final = "text/plain; charset=utf-8"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

Check = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Export:
    """Where the metrics are served, and whether the gauges carry the tenant."""

    host: str
    port: int
    tenant_label: bool = True


@dataclass(slots=True)
class Health:
    """What the pool says of itself; before it is there, nothing is ready."""

    alive: Check = lambda: True
    ready: Check = lambda: False


@contextmanager
def exporting(export: Export | None, target: Target, kinds: Iterable[str]) -> Iterator[tuple[Meter, Health]]:
    """Serve the metrics of a pool for the time of a with block; without an export nothing is counted."""
    health = Health()
    if export is None:
        yield Meter(), health
        return
    registry = make_registry()
    with gauges(target, tenant_label=export.tenant_label) as collector:
        registry.register(collector)
        meter = PrometheusMeter(registry, kinds)
        with served(export.host, export.port, registry, health):
            yield meter, health


@contextmanager
def gauges(target: Target, *, tenant_label: bool) -> Iterator[Gauges]:
    """The gauges of the database for the time of a with block, on a session of their own."""
    session = Session(target, "metrics")
    collector = Gauges(lambda: session.run(job_metrics()), tenant_label=tenant_label)
    try:
        yield collector
    finally:
        collector.close(session.sever)
        session.close()


@contextmanager
def served(host: str, port: int, registry: CollectorRegistry, health: Health) -> Iterator[int]:
    """Serve for the time of a with block; gives the port, which the system chooses for 0. Raises UsageError."""
    try:
        server = _Server((host, port), _request_class(registry, health))
    except (OSError, OverflowError) as error:
        where = f"{host}:{port}"
        raise UsageError(
            f"metrics cannot be served on {where}: {error}: choose another --metrics-port or --metrics-host"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="exporter", daemon=True)
    thread.start()
    event(logging.INFO, "metrics_served", host=host, port=server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def make_registry() -> CollectorRegistry:
    """A registry of our own metrics and the process's, without the creation times that promtool finds fault with."""
    cast(Callable[[], None], disable_created_metrics)()
    registry = CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    info = prometheus_client.Info("mdm_jobs_build", "Versions of the runner.", registry=registry)
    info.info({"version": __version__, "schema_version": str(schema.SCHEMA_VERSION)})
    return registry


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _request_class(registry: CollectorRegistry, health: Health) -> type[BaseHTTPRequestHandler]:
    """The class of the requests; http.server wants a class where a function would do."""

    class Request(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "jobrunner"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, exposition.generate_latest(registry), METRICS)
            elif path == "/healthz":
                self._verdict(health.alive(), "the pool's main loop stands still")
            elif path == "/readyz":
                self._verdict(health.ready(), "no database, or the runner is starting or stopping")
            else:
                self._answer(404, b"/metrics, /healthz, /readyz\n", TEXT)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: a scrape is no event."""

        def _verdict(self, good: bool, reason: str) -> None:
            self._answer(200 if good else 503, b"ok\n" if good else f"{reason}\n".encode(), TEXT)

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Request
