"""How the runner opens a connection."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import Diagnostic

from jobrunner.logs import event

# What a DSN may override. A dead peer is noticed after about 30 s, a connection that does not open after 5 s.
DEFAULTS: Final[dict[str, str | int]] = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# READ COMMITTED whatever the role or the database say (B39); only the start of a session can overrule them.
ISOLATION: Final = r"-c default_transaction_isolation=read\ committed"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, and whether a transaction pooler stands between (D19)."""

    dsn: str
    pooler: bool = False


def detect(target: Target) -> Target:
    """Give the target with `pooler` set where a pooler stands between: it must not depend on an option alone (D19).

    A pooler tells its clients another pid than the server does, or refuses start-up options. Raises
    psycopg.OperationalError.
    """
    if target.pooler:
        return target
    try:
        with connect(target, "start") as conn:
            [told] = conn.execute("select pg_backend_pid()").fetchone() or (None,)
            return replace(target, pooler=told != conn.info.backend_pid)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" not in str(error):
            raise
        return replace(target, pooler=True)


def connect(target: Target, name: str, *, lock_seconds: float = 0, **overrides: str | int) -> psycopg.Connection[Any]:
    """Open an autocommit connection whose application_name is `jobrunner <name>`.

    Behind a pooler nothing is prepared and no startup options are sent (it would refuse them): every transaction
    then names its isolation level itself. What the server warns of goes to the log. Raises psycopg.OperationalError.
    """
    given = {key: value for key, value in conninfo_to_dict(target.dsn).items() if value is not None}
    params: dict[str, Any] = {**DEFAULTS, "application_name": f"jobrunner {name}", **given, **overrides}
    if not target.pooler:
        options = given.get("options") or os.environ.get("PGOPTIONS", "")  # ours would hide those of the environment
        limit = f"-c lock_timeout={lock_seconds * 1000:.0f}" if lock_seconds else ""
        params["options"] = f"{options} {ISOLATION} {limit}".strip()
    conn = psycopg.connect("", autocommit=True, client_encoding="utf8", **params)
    conn.add_notice_handler(partial(_log_warning, name))
    if target.pooler:
        conn.prepare_threshold = None
    return conn


def _log_warning(name: str, notice: Diagnostic) -> None:
    """Log what the server warns of in a session; what it only mentions stays out."""
    if notice.severity_nonlocalized == "WARNING":
        said = {"sqlstate": notice.sqlstate, "message": notice.message_primary, "detail": notice.message_detail}
        event(logging.WARNING, "server_warning", session=name, **said, hint=notice.message_hint)
