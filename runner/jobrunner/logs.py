"""Log lines: one event name an action, then key=value or JSON. Never a payload (style: Python 9)."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from jobrunner.job import ClaimedRow

logger: Final = logging.getLogger("jobrunner")

_TRACEPARENT: Final = re.compile(r'"traceparent": ?"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}')
_PLAIN: Final = re.compile(r"[\w.:/@+*-]+")


def event(level: int, name: str, **fields: Any) -> None:
    """Log an action. Fields that are None are left out."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": fields})


def job_event(level: int, name: str, row: ClaimedRow, **fields: Any) -> None:
    """Log an action on a job, with the fields that every such line carries."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": job_fields(row) | fields})


def job_fields(row: ClaimedRow) -> dict[str, Any]:
    """What every line about a job says."""
    return {
        "job_id": row.id,
        "job_kind": row.job_kind,
        "tenant_id": row.tenant_id or "-",
        "worker_id": row.claimed_by,
        "attempt": row.attempts,
        "trace_id": trace_id(row.context),
    }


def trace_id(context: str | None) -> str | None:
    """The trace that a job belongs to: out of the W3C traceparent in its context, if there is one."""
    found = _TRACEPARENT.search(context) if context else None
    return found[1] if found else None


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of a handler: its messages carry the job's fields."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields to a line."""
        return msg, {**kwargs, "extra": {"fields": self.extra or {}, "said": True}}


def job_logger(row: ClaimedRow) -> JobLogger:
    """Make the logger of one job."""
    return JobLogger(logging.getLogger("jobrunner.handler"), job_fields(row))


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is at the moment: a progress bar puts itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class TextFormatter(logging.Formatter):
    """Time, level, event, key=value ..."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record on one line."""
        name, fields = _parts(record)
        words = [_time(record), record.levelname.lower(), name]
        words += [f"{key}={_word(value)}" for key, value in fields.items() if value is not None]
        return " ".join(words)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record on one line."""
        name, fields = _parts(record)
        head = {"time": _time(record), "level": record.levelname.lower(), "event": name}
        return json.dumps(head | {key: value for key, value in fields.items() if value is not None}, default=str)


def setup(log_format: str, level: int) -> None:
    """Send the lines of the runner and of its handlers to stderr, in `text` or `json`."""
    handler = _Handler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of connections that we know to be lost


def log_death(args: threading.ExceptHookArgs) -> None:
    """Log what ended a thread, with its traceback: in the place of threading.excepthook, which writes to stderr."""
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread is not None else None
    lines = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
    event(logging.ERROR, "thread_died", thread=name, traceback="".join(lines).rstrip())


def _parts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Part a record into its event name and its fields; free text becomes a field."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    said = getattr(record, "said", False) or not hasattr(record, "fields")
    name = ("job_said" if fields else "said") if said else record.getMessage()
    extra = {"message": record.getMessage()} if said else {}
    if record.exc_info:
        extra["traceback"] = logging.Formatter().formatException(record.exc_info)
    return name, {**extra, **fields}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _word(value: Any) -> str:
    """Write a value so that a line stays one line and can be taken apart again."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
