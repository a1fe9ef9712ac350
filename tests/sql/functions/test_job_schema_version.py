"""job_schema_version: what a runner compares itself with."""

from __future__ import annotations

from jobrunner import schema
from jobs import Connection, value


def test_job_schema_version_is_the_runners(conn: Connection) -> None:
    assert value(conn, "select mdm.job_schema_version()") == schema.SCHEMA_VERSION == 1
