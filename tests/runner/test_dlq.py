"""`jobrunner dlq`: list, show, replay and discard, by id and by filter; nothing without --yes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from incli import run
from jobs import Connection, actions, audit, claim_one, enqueue, fail, make_job, make_tenant, status, stored

pytestmark = pytest.mark.one_leg("15")

VERBS = [("replay", "replayed", "pending"), ("discard", "discarded", "gone")]


def dead(conn: Connection, error: str = "broken", **parameters: Any) -> int:
    """Make a dead job."""
    job_id = enqueue(conn, **parameters)
    claimed = claim_one(conn, parameters.get("job_kind", "reindex"))
    fail(conn, claimed, error, retryable=False)
    return job_id


def listed(dsn: str, *arguments: str) -> list[int]:
    """The ids that `dlq list` gives."""
    code, out, log = run(dsn, "dlq", "list", "--json", *arguments)
    assert code == 0, log
    return [each["id"] for each in json.loads(out)]


def outcomes(out: str) -> dict[int, str]:
    return {each["job_id"]: each["outcome"] for each in json.loads(out)}


def test_dlq_list_filters(conn: Connection, dsn: str) -> None:
    tenant = make_tenant(conn)
    first = dead(conn, "printer: out of paper")
    second = dead(conn, "no such name", tenant_id=tenant)
    third = dead(conn, "100% broken", job_kind="index_sync")
    make_job(conn, "failed", "gin_backfill")
    conn.execute("update mdm.aa_job set completed_at = '2020-01-01Z' where id = %s", (first,))

    assert listed(dsn) == [third, second, first]
    assert listed(dsn, "--limit", "1") == [third]
    assert listed(dsn, "--kind", "reindex") == [second, first]
    assert listed(dsn, "--tenant", str(tenant)) == [second]
    assert listed(dsn, "--tenant", "platform") == [third, first]
    assert listed(dsn, "--error", "%") == [third]
    assert listed(dsn, "--before", "2020-01-01T00:00:01+00:00") == [first]
    assert listed(dsn, "--after", "2020-01-01T00:00:01+00:00") == [third, second]
    assert listed(dsn, "--kind", "reindex", "--error", "paper", "--tenant", str(tenant)) == []


def test_dlq_list_in_a_pipe_is_one_line_a_job(conn: Connection, dsn: str) -> None:
    dead(conn, "one\ntwo\tthree")
    code, out, _ = run(dsn, "dlq", "list")
    head, line = out.splitlines()
    assert code == 0
    assert head.split() == ["id", "kind", "tenant", "attempts", "died", "last_error"]
    assert line.endswith("one two three")


def test_dlq_show_tells_the_whole_story(conn: Connection, dsn: str) -> None:
    job_id = dead(conn, "out of paper", payload={"entity_type": "airport"})
    code, out, _ = run(dsn, "dlq", "show", str(job_id), "--json")
    found = json.loads(out)
    assert (code, found["payload"]) == (0, {"entity_type": "airport"})
    assert [each["event"] for each in found["history"]] == ["job_enqueued", "job_dlq", "is dlq"]
    _, out, _ = run(dsn, "dlq", "show", str(job_id))
    assert '{"entity_type": "airport"}' in out


def test_dlq_show_of_a_job_that_is_not_dead(conn: Connection, dsn: str) -> None:
    code, out, log = run(dsn, "dlq", "show", str(enqueue(conn)))
    assert (code, out) == (1, "")
    assert "jobrunner explain" in log


@pytest.mark.parametrize(("verb", "outcome", "becomes"), VERBS)
def test_dlq_bulk_is_a_dry_run_without_yes(conn: Connection, dsn: str, verb: str, outcome: str, becomes: str) -> None:
    first, second = dead(conn, "out of paper"), dead(conn, "no such name")
    code, out, log = run(dsn, "dlq", verb, "--error", "paper", "--json")
    assert (code, outcomes(out)) == (0, {first: f"would_{verb}"})
    assert "nothing was changed: add --yes" in log
    assert {status(conn, first), status(conn, second)} == {"dlq"}

    code, out, _ = run(dsn, "dlq", verb, "--error", "paper", "--yes", "--json", "--reason", "fixed")
    assert (code, outcomes(out)) == (0, {first: outcome})
    assert (status(conn, first), status(conn, second)) == (becomes, "dlq")
    assert audit(conn, first)[-1]["payload"]["reason"] == "fixed"


@pytest.mark.parametrize(("verb", "outcome", "becomes"), VERBS)
def test_dlq_by_id(conn: Connection, dsn: str, verb: str, outcome: str, becomes: str) -> None:
    first, second = dead(conn), dead(conn)
    assert run(dsn, "dlq", verb, str(first))[0] == 0
    assert status(conn, first) == "dlq"
    code, out, log = run(dsn, "dlq", verb, str(first), "99", str(first), "--yes", "--json")
    assert outcomes(out) == {first: outcome, 99: "no job 99 [MJ002]"}
    assert code == 1
    assert "1 job of 2 could not be acted on" in log
    assert (status(conn, first), status(conn, second)) == (becomes, "dlq")
    assert actions(conn, first)[-1] == f"job_{verb}"


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_dlq_names_a_job_in_the_wrong_state_before_it_asks(conn: Connection, dsn: str, verb: str) -> None:
    good, done = dead(conn), int(make_job(conn, "done", "gin_backfill")["id"])
    code, out, log = run(dsn, "dlq", verb, str(good), str(done), "--json")
    [refused] = json.loads(out)
    assert (code, refused["job_id"]) == (1, done)
    assert "MJ004" in refused["outcome"]
    assert "done" in refused["remedy"]
    assert "nothing was changed: 1 job of 2 could not be acted on" in log
    assert "--yes" not in log
    assert (status(conn, good), status(conn, done)) == ("dlq", "done")

    alone = run(dsn, "dlq", verb, str(done), "--json")
    forced = run(dsn, "dlq", verb, str(done), "--json", "--yes")
    assert alone[:2] == forced[:2], "--yes is no remedy"


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_dlq_all_must_be_said(conn: Connection, dsn: str, verb: str) -> None:
    job_id = dead(conn)
    code, out, log = run(dsn, "dlq", verb, "--yes")
    assert (code, out) == (2, "")
    assert "--all" in log
    code, _, log = run(dsn, "dlq", verb, str(job_id), "--all", "--yes")
    assert code == 2
    assert "exclude each other" in log
    assert status(conn, job_id) == "dlq"
    assert run(dsn, "dlq", verb, "--all", "--yes")[0] == 0
    assert status(conn, job_id) != "dlq"


@pytest.mark.parametrize("verb", ["list", "replay", "discard"])
def test_dlq_says_that_nothing_matches(conn: Connection, dsn: str, verb: str) -> None:
    dead(conn)
    code, out, log = run(dsn, "dlq", verb, "--kind", "reindx", "--json")
    assert (code, json.loads(out), log) == (0, [], "no dead job matches\n")


@pytest.mark.parametrize("verb", ["list", "replay", "discard"])
def test_dlq_refuses_an_empty_error_which_would_be_every_job(conn: Connection, dsn: str, verb: str) -> None:
    job_id = dead(conn)
    code, out, log = run(dsn, "dlq", verb, "--error", "", *([] if verb == "list" else ["--yes"]))
    assert (code, out) == (2, "")
    assert "--error is empty" in log
    assert status(conn, job_id) == "dlq"


def test_dlq_limit_is_said_when_it_is_reached(conn: Connection, dsn: str) -> None:
    jobs = [dead(conn) for _ in range(3)]
    code, out, log = run(dsn, "dlq", "replay", "--all", "--limit", "2", "--yes", "--json")
    assert code == 0
    assert len(outcomes(out)) == 2
    assert "there may be more" in log
    assert sorted(status(conn, job_id) for job_id in jobs) == ["dlq", "pending", "pending"]


def test_dlq_replay_names_what_is_superseded(conn: Connection, dsn: str) -> None:
    old = dead(conn, idempotency_key="k")
    enqueue(conn, idempotency_key="k", on_conflict="update")
    code, out, _ = run(dsn, "dlq", "replay", "--all", "--yes", "--json")
    assert (code, outcomes(out)) == (0, {old: "superseded"})


def test_dlq_is_for_administrators(conn: Connection, dsn: str) -> None:
    job_id = dead(conn)
    for role in ("mdm_worker", "mdm_monitor"):
        code, _, log = run(make_conninfo(dsn, user=f"test_{role}"), "dlq", "discard", str(job_id), "--yes")
        assert code == 1
        assert "42501" in log
    assert stored(conn, job_id) is not None
    admin = make_conninfo(dsn, user="test_mdm_admin")
    assert run(admin, "dlq", "discard", str(job_id), "--yes")[0] == 0
    assert stored(conn, job_id) is None
