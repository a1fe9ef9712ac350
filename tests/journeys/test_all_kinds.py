"""bin/run --all on a handful of entities: all eight kinds, virus_scan where clamd is installed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobrunner.demo import crash
from jobrunner.demo.__main__ import main
from jobrunner.demo.clamd import find_clamd
from jobrunner.demo.data import Entity, tenant_id
from jobrunner.handlers import HANDLERS
from jobs import Connection, age

pytestmark = [pytest.mark.slow, pytest.mark.one_leg("18")]

FEW = [
    Entity(tenant_id("AS"), "airport", "RJTT", {"name": "Tokyo International Airport", "elevation_ft": 35}),
    Entity(tenant_id("EU"), "airport", "EGLL", {"name": "Heathrow", "elevation_ft": 83}),
    Entity(tenant_id("EU"), "city", "524901", {"name": "Moscow", "population": 10381222}),
]


def age_claims(conn: Connection, job_ids: list[int]) -> datetime:
    """Do not wait until the claims are stale."""
    age(conn, *job_ids)
    return datetime.now(UTC)


def row(said: str, kind: str) -> tuple[int, str]:
    """Return the number of jobs of a kind and their outcome, as the table has them."""
    found = re.search(rf"^  {kind} +(\d+)  (.*?)  +[\d.]+  ", said, re.MULTILINE)
    assert found, said
    return int(found[1]), found[2]


def test_run_all_runs_every_kind_and_checks_the_world(
    fresh_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crash, "stale_at", age_claims)
    arguments = ["--dsn", fresh_dsn, "--directory", str(tmp_path), "--all"]
    kinds = [kind for kind in sorted(HANDLERS) if kind != "virus_scan" or find_clamd()]

    assert main(arguments, lambda: FEW) == 0
    said = capfd.readouterr().out
    rows = {kind: row(said, kind) for kind in kinds}
    assert rows.pop("email_send") == (9, "8 done, 1 dlq")
    assert {outcome for number, outcome in rows.values() if outcome != f"{number} done"} == set()
    for line in (
        "252 entities = 252 lines without error",
        "1 rejected: population is no number",
        "9 mails received = 9 sent in email_log",
        "1 refused = 1 refused in email_log",
        "1 suppressed got none",
        "1 calls received and verified = 1 deliveries",
        "3 vectors rebuilt = 3 entities",
        "gone@refused.example: 550 5.1.1 no such user",
    ):
        assert line in said
    assert re.search(r"stale claim of job \d+ recovered, and done", said)
    assert f"of {len(kinds)} kinds, and the world is as they say" in said
