"""Each invariant with a way to break it, by statements that the functions of the schema would never run."""

from __future__ import annotations

from jobs import Connection, make_job

# name -> the state to start from, and what to do to it
PLANTED = {
    "running_without_lease": ("running", "update mdm.aa_job set lease_no = null"),
    "pending_but_claimed": ("pending", "update mdm.aa_job set heartbeat_at = now()"),
    "completed_at_wrong": ("running", "update mdm.aa_job set completed_at = now()"),
    "pending_without_attempts_left": ("pending", "update mdm.aa_job set attempts = max_attempts"),
    "more_attempts_than_allowed": ("running", "update mdm.aa_job set attempts = max_attempts + 1"),
    "unregistered_kind": ("pending", "update mdm.aa_job set job_kind = 'nope'"),
    "audit_row_missing": ("done", "delete from mdm.aa_audit_log where action = 'job_done'"),
    "done_twice": (
        "done",
        "insert into mdm.aa_audit_log (action, object_type, object_id)"
        " select action, object_type, object_id from mdm.aa_audit_log where action = 'job_done'",
    ),
}


def allow_impossible_rows(conn: Connection) -> None:
    """Take away the checks that keep rows of impossible states out."""
    for constraint in ("running", "pending", "completed_at"):
        conn.execute(f"alter table mdm.aa_job drop constraint aa_job_{constraint}_check".encode())


def plant(conn: Connection, name: str) -> int:
    """Make the only job of the table, break the invariant for it, and return its id."""
    state, statement = PLANTED[name]
    job_id = int(make_job(conn, state)["id"])
    conn.execute(statement.encode())
    return job_id
