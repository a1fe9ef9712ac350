"""What bin/run --all lets the platform do: in every run anew, so that each run has something to do for each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrunner.demo import acts, every, load
from jobs import Connection, value

pytestmark = pytest.mark.one_leg("18")


def wanted(conn: Connection) -> tuple[list[str], list[str]]:
    """The attributes that are sortable, and the types that are targets."""
    return (
        value(conn, "select array_agg(attribute_key) from mdm.ddm_entity_type_attribute where sortable"),
        value(conn, "select array_agg(type_key) from mdm.ddm_entity_type where is_external_source_target"),
    )


def test_steward_wants_another_index_in_every_run(conn: Connection) -> None:
    load.register(conn)
    seen = []
    for _ in range(3):
        chosen = acts.make_sortable(conn), acts.make_target(conn)
        assert wanted(conn) == ([acts.SORTED[chosen[0]]], [chosen[1]])
        seen.append(chosen)
    assert seen == [("airport", "airport"), ("city", "city"), ("airport", "airport")]


def test_upload_of_no_more_than_the_wrong_line(conn: Connection) -> None:
    load.register(conn)
    assert acts.upload(conn, []) == (1, 1)
    assert value(conn, "select count(*) from mdm.aa_job where job_kind = 'bulk_import'") == 1


def test_consumers_are_registered_once(conn: Connection) -> None:
    load.register(conn)
    for port in (1, 2):
        acts.register_consumers(conn, lambda path, port=port: f"http://127.0.0.1:{port}{path}", "whsec_x")  # type: ignore[misc]
    assert value(conn, "select count(*) from mdm.aa_webhook_endpoint where url like 'http://127.0.0.1:2/%%'") == 7


def test_without_clamd_the_runner_leaves_virus_scan_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every, "find_clamd", lambda: None)
    with every.serving(tmp_path) as servers:
        assert servers.runner[1] == "bulk_import,cleanup_jobs,email_send,outbox_dispatch,reindex"
        assert "JOBRUNNER_CLAMD" not in servers.settings
