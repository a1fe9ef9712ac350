"""What Prometheus makes of it: promtool reads the exposition and the rules, a real server scrapes a real runner."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from cluster import ROOT, missing
from jobrunner.db.connect import Target
from jobrunner.demo.ports import free_port
from jobrunner.exporter import gauges, make_registry
from jobrunner.metrics import PrometheusMeter
from jobs import Connection, enqueue, make_job, make_kind
from runnerkit import drain, eventually, jobrunner, options
from scraped import series

pytestmark = pytest.mark.one_leg("15")

RULES = ROOT / "docs" / "reference" / "alerts.yml"
RULES_TEST = Path(__file__).with_name("alerts_test.yml")
NAMES = re.compile(r"\bmdm_jobs_\w+")


def tool(name: str) -> str:
    """The path of a program of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        missing("prometheus", f"{name} is not installed")
        raise AssertionError
    return found


def promtool(*arguments: str, cwd: Path, text: str = "") -> None:
    """Run promtool; what it finds fault with fails the test."""
    done = subprocess.run(
        [tool("promtool"), *arguments], cwd=cwd, input=text, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


@pytest.fixture
def shown(conn: Connection, dsn: str) -> str:
    """What an exporter shows of a database in which everything has happened."""
    for state in ("pending", "running", "dlq"):
        make_job(conn, state, "index_sync")
        conn.execute("update mdm.aa_job set available_at = '2100-01-01Z' where status = 'pending'")
    enqueue(conn)
    conn.execute("call mdm.cleanup_jobs()")
    registry = make_registry()
    drain(dsn, {"reindex": lambda job, ctx: None}, meter=PrometheusMeter(registry, ["reindex"]))
    with gauges(Target(dsn), tenant_label=True) as collector:
        collector.refresh()
        registry.register(collector)
        return prometheus_client.generate_latest(registry).decode()


def test_promtool_accepts_the_exposition(shown: str, tmp_path: Path) -> None:
    promtool("check", "metrics", cwd=tmp_path, text=shown)


def test_exposition_has_exactly_the_names_and_labels_of_s12(shown: str) -> None:
    labels = {name: {label for label, _ in found} for name, found in series(shown)}
    assert labels["mdm_jobs_pending"] == {"tenant", "kind"}
    assert labels["mdm_jobs_running"] == {"tenant", "kind"}
    assert labels["mdm_jobs_dlq"] == {"tenant", "kind"}
    assert labels["mdm_jobs_claim_latency_seconds_bucket"] == {"kind", "le"}
    assert labels["mdm_jobs_processing_seconds_bucket"] == {"kind", "le"}
    assert labels["mdm_jobs_attempts_total"] == {"kind", "outcome"}


def test_every_metric_is_in_the_reference(shown: str) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    families = re.findall(r"^# TYPE (mdm_\w+) ", shown, re.MULTILINE)
    assert families
    assert [name for name in families if f"`{name}`" not in page and f"`{name}{{" not in page] == []


def test_rules_use_metrics_that_exist(shown: str) -> None:
    names = {name for name, _ in series(shown)}
    assert NAMES.findall(RULES.read_text())
    assert set(NAMES.findall(RULES.read_text())) - names == set()


def test_promtool_accepts_the_rules_and_their_unit_tests_hold(tmp_path: Path) -> None:
    for path in (RULES, RULES_TEST):
        shutil.copy(path, tmp_path)
    promtool("check", "rules", RULES.name, cwd=tmp_path)
    promtool("test", "rules", RULES_TEST.name, cwd=tmp_path)


def test_every_rule_has_a_unit_test_that_it_fires_in() -> None:
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts", RULES_TEST.read_text())
    assert set(alerts) == set(fired)


@contextmanager
def prometheus(directory: Path, target: int) -> Iterator[int]:
    """A Prometheus that scrapes 127.0.0.1:target each second and knows our rules; gives its port."""
    shutil.copy(RULES, directory)
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yml]\n"
        f"scrape_configs: [{{job_name: jobs, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    port = free_port()
    command = [
        tool("prometheus"),
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(60)


def asked(port: int, query: str) -> list[dict[str, Any]]:
    """What a Prometheus answers; nothing while it starts."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])
    except OSError:
        return []


@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_real_runner(conn: Connection, dsn: str, tmp_path: Path) -> None:
    tool("prometheus")
    make_kind(conn, "noop")
    for _ in range(5):
        enqueue(conn, "noop")
    make_job(conn, "dlq")
    port = free_port()
    arguments = options(["noop"], "--metrics-port", str(port))
    with jobrunner(dsn, *arguments) as command, prometheus(tmp_path, port) as server:
        eventually(lambda: command.events("metrics_served"))
        [up] = eventually(lambda: asked(server, "up == 1"), seconds=90)
        assert up["metric"]["job"] == "jobs"
        query = 'mdm_jobs_attempts_total{kind="noop", outcome="done"} == 5'
        assert eventually(lambda: asked(server, query), seconds=90)
        assert eventually(lambda: asked(server, 'mdm_jobs_dlq{kind="reindex", tenant=""} == 1'), seconds=90)
        [count] = eventually(lambda: asked(server, 'mdm_jobs_claim_latency_seconds_count{kind="noop"}'))
        assert count["value"][1] == "5"
        assert eventually(lambda: asked(server, "scrape_duration_seconds{job='jobs'} < 5"))
        samples = eventually(lambda: asked(server, "scrape_samples_scraped{job='jobs'}"))
        assert 0 < int(samples[0]["value"][1]) < 1000
