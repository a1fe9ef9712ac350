"""Log lines: one event a line, as text or JSON, with the job's fields and the trace of its producer."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from jobrunner import logs
from jobs import Connection, enqueue, make_kind
from runnerkit import jobrunner, options

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged, instead of stderr; the logger is as before afterwards."""
    out = io.StringIO()
    before = (list(logs.logger.handlers), logs.logger.level, logs.logger.propagate)
    handler = logging.StreamHandler(out)
    logs.logger.handlers, logs.logger.propagate = [handler], False
    logs.logger.setLevel(logging.INFO)
    yield out
    logs.logger.handlers, level, logs.logger.propagate = before
    logs.logger.setLevel(level)


@pytest.mark.parametrize(
    ("context", "found"),
    [
        (None, None),
        ("{}", None),
        (f'{{"traceparent": "{PARENT}"}}', TRACE),
        (f'{{"a": 1, "traceparent": "{PARENT}", "tracestate": "x"}}', TRACE),
        ('{"traceparent": "00-short-00f067aa0ba902b7-01"}', None),
        ('{"traceparent": 7}', None),
        ("[1]", None),
    ],
)
def test_trace_id_comes_out_of_the_traceparent(context: str | None, found: str | None) -> None:
    assert logs.trace_id(context) == found


def test_text_line_can_be_taken_apart(written: io.StringIO) -> None:
    logs.logger.handlers[0].setFormatter(logs.TextFormatter())
    logs.event(logging.INFO, "something", count=3, reason='two words, "quoted"\nand a line', absent=None)
    [line] = written.getvalue().splitlines()
    assert line.split(" ", 3)[1:] == ["info", "something", 'count=3 reason="two words, \\"quoted\\"\\nand a line"']


def test_json_line_is_an_object(written: io.StringIO) -> None:
    logs.logger.handlers[0].setFormatter(logs.JsonFormatter())
    logs.event(logging.INFO, "something", count=3, absent=None)
    found = json.loads(written.getvalue())
    assert (found["event"], found["level"], found["count"]) == ("something", "info", 3)
    assert "absent" not in found


def test_runner_logs_json_with_job_and_trace_and_never_the_payload(conn: Connection, dsn: str) -> None:
    make_kind(conn, "raises", max_attempts=1)
    payload = {"error": "error", "secret": "swordfish"}
    job_id = enqueue(conn, "raises", payload=payload, context=json.dumps({"traceparent": PARENT}))
    with jobrunner(dsn, *options(["raises"], "--drain", "--log-format", "json", "--log-level", "debug")) as command:
        assert command.end() == 0
        lines = [json.loads(line) for line in command.log.splitlines()]
        assert "swordfish" not in command.log
    [dead] = [line for line in lines if line["event"] == "job_dead"]
    assert (dead["job_id"], dead["job_kind"], dead["tenant_id"], dead["attempt"]) == (job_id, "raises", "-", 1)
    assert dead["trace_id"] == TRACE
    assert dead["worker_id"].count("/") == 2
