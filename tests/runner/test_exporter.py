"""The HTTP side of the metrics through the real command: pages, address, readiness, ports in use."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from jobrunner import devserver, schema
from jobrunner.devserver import Server
from jobs import Connection, enqueue, make_kind
from runnerkit import TERM, Command, eventually, jobrunner, options, run
from scraped import get, value

pytestmark = pytest.mark.one_leg("15")


def port_of(command: Command) -> int:
    """The port that the command says it serves on."""
    [line] = eventually(lambda: command.events("metrics_served"))
    found = re.search(r" port=(\d+)", line)
    assert found is not None
    return int(found[1])


def serving(*more: str) -> list[str]:
    return options(["noop"], "--metrics-port", "0", *more)


def test_exporter_serves_counts_health_and_readiness(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    for _ in range(3):
        enqueue(conn, "noop")
    with jobrunner(dsn, *serving()) as command:
        port = port_of(command)
        eventually(lambda: get(port, "/readyz")[0] == 200)
        eventually(lambda: value(get(port, "/metrics")[1], "mdm_jobs_attempts_total", kind="noop", outcome="done") == 3)
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/")[0] == 404
        text = get(port, "/metrics")[1]
        assert "# TYPE mdm_jobs_claim_latency_seconds histogram" in text
        assert "mdm_jobs_build_info{" in text
        command.signal(TERM)
        assert command.end() == 0


def test_exporter_listens_on_the_loopback_only(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    with jobrunner(dsn, *serving()) as command:
        port = port_of(command)
        wanted = f":{port:04X}"
        lines = Path(f"/proc/{command.pid}/net/tcp").read_text().splitlines()[1:]
        listening = [line.split()[1] for line in lines if line.split()[3] == "0A" and line.split()[1].endswith(wanted)]
        assert listening == [f"0100007F{wanted}"]


def test_exporter_can_leave_the_tenants_out(conn: Connection, dsn: str) -> None:
    make_kind(conn, "noop")
    enqueue(conn)
    with jobrunner(dsn, *serving("--no-tenant-label")) as command:
        port = port_of(command)
        eventually(lambda: value(get(port, "/metrics")[1], "mdm_jobs_pending", kind="reindex") == 1)


def test_exporter_port_in_use_is_one_line(conn: Connection, dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, log = run(dsn, "--kinds", "reindex", "--drain", "--metrics-port", str(port))
    assert (code, out) == (2, "")
    assert f"127.0.0.1:{port}" in log
    assert "choose another --metrics-port" in log
    assert log.count("\n") == 1


def test_readiness_follows_the_database(own_server: Server) -> None:
    dsn = own_server.dsn("mdm")
    schema.migrate(dsn)
    with jobrunner(dsn, "--kinds", "reindex", "--metrics-port", "0") as command:
        port = port_of(command)
        eventually(lambda: get(port, "/readyz")[0] == 200)
        devserver.stop(own_server)
        eventually(lambda: get(port, "/readyz")[0] == 503)
        assert get(port, "/healthz")[0] == 200
        assert get(port, "/metrics")[0] == 200
        devserver.start(own_server.base, own_server.bin)
        eventually(lambda: get(port, "/readyz")[0] == 200)
        command.signal(TERM)
        assert command.end() == 0


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1"])
def test_exporter_address_that_is_not_ours_is_one_line(conn: Connection, dsn: str, host: str) -> None:
    code, _, log = run(dsn, "--kinds", "reindex", "--drain", "--metrics-port", "0", "--metrics-host", host)
    assert code == 2
    assert log.count("\n") == 1
