"""Rate limits of a real runner (S7, D23): throttled jobs keep their attempts, and nobody else waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from time import monotonic
from typing import Any

import pytest

import incli
from jobs import Connection, enqueue, job, make_kind, make_tenant, value, violations
from runnerkit import TERM, eventually, jobrunner, options, run

pytestmark = pytest.mark.one_leg("18")

KIND = "noop"


@pytest.fixture(autouse=True)
def kind(conn: Connection) -> str:
    make_kind(conn, "raises", max_attempts=3, base_delay="1 second", max_delay="15 minutes")
    return make_kind(conn, KIND, audit_level="exceptions")


def limit(rps: float, burst: Any, kind: str = KIND) -> dict[str, Any]:
    return {"rate_limit": {kind: {"rps": rps, "burst": burst}}}


def p95_ms(conn: Connection, jobs: Sequence[int]) -> float:
    """The wait from enqueue to claim that 95 of 100 of these jobs did not exceed."""
    query = "select extract(epoch from claimed_at - created_at)::float8 * 1000 from mdm.aa_job where id = any(%s)"
    waits = sorted(row for (row,) in conn.execute(query, (jobs,)))
    assert len(waits) == len(jobs)
    return float(waits[ceil(0.95 * len(waits)) - 1])


def paced(conn: Connection, tenant: Any, count: int) -> list[int]:
    """Enqueue one job every 20 ms, and wait until all are done."""
    jobs: list[int] = []
    for number in range(count):
        began = monotonic()
        jobs.append(enqueue(conn, KIND, tenant_id=tenant))
        eventually(lambda began=began: monotonic() - began > 0.02, every=0.005)
        assert number == len(jobs) - 1
    left = "select count(*) from mdm.aa_job where id = any(%s) and status <> 'done'"
    eventually(lambda: value(conn, left, jobs) == 0, seconds=60)
    return jobs


def test_b83_throttled_jobs_keep_their_attempts_and_fail_as_others_do(conn: Connection, dsn: str) -> None:
    """rps 0.01, burst 1, 10 jobs with 3 attempts: waiting costs none, and the first real failure is a retry."""
    tenant = make_tenant(conn, metadata=limit(0.01, 1, "raises"))
    jobs = [enqueue(conn, "raises", {"error": "error"}, tenant_id=tenant) for _ in range(10)]
    for _ in range(5):
        run(dsn, *options(["raises"], "--drain"))
        # due again at once: it is refused again, but for the one token that a new process has
        conn.execute("update mdm.aa_job set available_at = clock_timestamp() where status = 'pending'")
    rows = [job(conn, each) for each in jobs]
    assert {row["status"] for row in rows} <= {"pending", "dlq"}
    assert sum(row["attempts"] for row in rows) == 5, "as many attempts as tokens"
    assert sum(row["releases"] for row in rows) >= 5 * 7
    assert all((row["status"] == "dlq") == (row["attempts"] == 3) for row in rows)
    assert violations(conn) == {}


def test_throttled_backlog_slows_no_other_tenant_and_gets_its_rate(conn: Connection, dsn: str) -> None:
    rate, burst = 20, 1
    quiet, busy = make_tenant(conn), make_tenant(conn, metadata=limit(rate, burst))
    fill = "select count(mdm.enqueue_job(%s, '{}', %s)) from generate_series(1, 5000)"
    with jobrunner(dsn, *options([KIND], "--log-level", "warning")) as command:
        eventually(lambda: value(conn, "select count(*) from mdm.aa_job_runner") == 1)
        paced(conn, quiet, 20)
        alone = p95_ms(conn, paced(conn, quiet, 100))
        conn.execute(fill, (KIND, busy))
        put_off = "select count(*) from mdm.aa_job where tenant_id = %s and releases > 0"
        eventually(lambda: value(conn, put_off, busy) > 4500, seconds=180)
        done = "select count(*) from mdm.aa_job where tenant_id = %s and status = 'done'"
        before, began = value(conn, done, busy), monotonic()
        beside = p95_ms(conn, paced(conn, quiet, 100))
        eventually(lambda: monotonic() - began > 5, seconds=10)
        got = (value(conn, done, busy) - before) / (monotonic() - began)
        command.signal(TERM)
        assert command.end() == 0
    print(f"p95 {alone:.1f} ms alone, {beside:.1f} ms beside the backlog; the backlog got {got:.1f} jobs/s of {rate}")
    assert beside < 1.5 * alone + 500, f"{beside} ms beside the backlog, {alone} ms alone"
    assert 0.75 * rate < got < 1.3 * rate
    assert value(conn, "select max(attempts) from mdm.aa_job where status = 'pending'") == 0
    assert violations(conn) == {}


def test_b85_malformed_limits_are_reported_once_and_limit_nothing(conn: Connection, dsn: str) -> None:
    bad: list[Any] = [{"rps": -1, "burst": 1}, {"rps": "5", "burst": 1}, {"rps": 5, "burst": 0}, {}, "x"]
    tenants = [make_tenant(conn, metadata={"rate_limit": {KIND: setting}}) for setting in bad]
    jobs = [enqueue(conn, KIND, tenant_id=tenant) for tenant in tenants for _ in range(3)]
    code, _, err = run(dsn, *options([KIND], "--drain"))
    assert code == 0
    assert err.count("rate_limit_ignored") == len(bad) == len(err.splitlines())
    assert {job(conn, each)["status"] for each in jobs} == {"done"}


def test_b85_rate_of_nothing_pauses_the_tenant_and_shows(conn: Connection, dsn: str) -> None:
    tenant = make_tenant(conn, metadata=limit(0, 1))
    jobs = [enqueue(conn, KIND, tenant_id=tenant) for _ in range(5)]
    code, out, _ = run(dsn, *options([KIND], "--drain"))
    assert code == 0
    assert "released 4" in out.splitlines()[-1], "the burst passes, the rest waits"
    assert sorted(job(conn, each)["status"] for each in jobs) == ["done"] + ["pending"] * 4
    reasons = conn.execute("select reason from mdm.explain_job(%s)", (jobs[-1],)).fetchall()
    assert reasons, "nothing explains why it waits"


@pytest.mark.parametrize("way", ["option", "environment"])
def test_cap_of_a_provider_holds_over_all_tenants(conn: Connection, dsn: str, way: str) -> None:
    """S7.3"""
    jobs = [enqueue(conn, KIND, tenant_id=make_tenant(conn)) for _ in range(4)] + [enqueue(conn, KIND)]
    arguments = options([KIND], "--drain", *(["--cap", f"{KIND}=0.01/2"] if way == "option" else []))
    environ = {} if way == "option" else {"JOBRUNNER_CAPS": f"email_send=50,{KIND}=0.01/2"}
    code, out, _ = run(dsn, *arguments, **environ)
    assert code == 0
    assert out.splitlines()[-1].startswith("done 2, failed 0, released 3, ")
    assert sorted(job(conn, each)["attempts"] for each in jobs) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "cap", ["noop", "noop=", "noop=x", "noop=0", "noop=-1", "noop=nan", "noop=5/0", "=5", "noop=1e9", ","]
)
def test_cap_refuses_what_is_no_limit(dsn: str, cap: str) -> None:
    code, _, err = incli.run(dsn, *options([KIND], "--drain", "--cap", cap))
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "--cap" in err
