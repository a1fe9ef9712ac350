"""The checks of `jobrunner doctor`: what was found, how bad it is, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from jobrunner import schema
from jobrunner.db import inspect
from jobrunner.db.operator import Health, job_health
from jobrunner.db.session import Session
from jobrunner.errors import JobrunnerError, SchemaError

OK, WARN, FAIL = "ok", "warn", "fail"
OLDEST_SERVER: Final = 150000  # D21
SKEW_SECONDS: Final = 2.0
SNAPSHOT_SECONDS: Final = 600.0
# What sql/tables/aa_job.sql sets; without it dead rows gather where claims look.
VACUUM: Final = {"autovacuum_vacuum_scale_factor": "0.01", "autovacuum_vacuum_cost_delay": "0"}


class Finding(NamedTuple):
    """One line of the report; `remedy` is None where nothing has to be done."""

    check: str
    state: str
    found: str
    remedy: str | None = None


Look = Callable[[Session], Iterator[Finding]]


# -- the server and the way to it


def server_version(login: inspect.Login) -> Finding:
    """Whether the server is one that we run on."""
    found = f"PostgreSQL {login.version}, {login.encoding}"
    if login.version_num < OLDEST_SERVER:
        return Finding("server", FAIL, found, "upgrade to PostgreSQL 15 or newer")
    if login.read_only:
        return Finding("server", FAIL, f"{found}, a read-only standby", "connect to the primary")
    if login.encoding != "UTF8":
        return Finding("server", WARN, found, "use a database in UTF8: other encodings cannot store every text")
    return Finding("server", OK, found)


def connection_path(login: inspect.Login, told_pid: int, *, pooler: bool) -> Finding:
    """Whether a pooler stands between: it tells clients another pid than the server does."""
    if told_pid == login.backend_pid:
        return Finding("pooler", OK, "none, the connection is direct")
    if pooler:
        return Finding("pooler", OK, "there is one, and --pooler says so")
    return Finding("pooler", WARN, "there is one", "run with --pooler, and --listen-dsn for a direct connection")


def clock_skew(server: datetime, before: datetime, after: datetime) -> Finding:
    """How far the clocks differ; jobs obey the server's alone (D7), logs of both are hard to compare."""
    early, late = (before - server).total_seconds(), (server - after).total_seconds()
    seconds = max(early, late, 0.0)
    if seconds > SKEW_SECONDS:
        side = "behind" if early > late else "ahead of"
        return Finding("clock", WARN, f"the server is {seconds:.1f} s {side} this machine", "let NTP set both clocks")
    return Finding("clock", OK, f"within {max(seconds, 0.1):.1f} s of the server's")


# -- the schema


def schema_version(session: Session) -> Finding:
    """Whether the schema is the one of this package."""
    try:
        schema.require_schema(session.connection())
    except SchemaError as error:
        found, _, remedy = str(error).rpartition(": ")
        return Finding("schema", FAIL, found, remedy)
    return Finding("schema", OK, f"version {schema.SCHEMA_VERSION}")


def schema_files(dsn: str) -> Finding:
    """Whether what is installed is what this package has; only an owner can see that."""
    try:
        report = schema.check(dsn)
    except JobrunnerError as error:
        found, _, remedy = str(error).rpartition(": ")
        return Finding("migrations", OK, f"not looked at: {found}", remedy)
    if report.current:
        return Finding("migrations", OK, f"none pending, {report.files} files as in this package")
    if report.migrations and len(report.changed) == report.files:
        return Finding("migrations", OK, "not known: installed by psql; `jobrunner migrate` would keep a record")
    found = f"{len(report.migrations)} pending, {len(report.changed)} files differ from this package"
    return Finding("migrations", WARN, found, "run `jobrunner migrate`")


def roles(session: Session) -> Iterator[Finding]:
    """Whether the roles are there, and which of them the login has."""
    missing = session.run(inspect.missing_roles())
    if missing:
        yield Finding("roles", FAIL, f"missing: {', '.join(missing)}", "run `jobrunner migrate`")
        return
    login, has = session.run(inspect.login()), session.run(inspect.memberships())
    if login.superuser:
        yield Finding(
            "roles", WARN, f"{login.role} is a superuser", "give runners a login of their own with mdm_worker"
        )
    elif not has:
        yield Finding(
            "roles", FAIL, f"{login.role} has none", f"grant mdm_worker, mdm_admin or another to {login.role}"
        )
    else:
        yield Finding("roles", OK, f"{login.role} has {', '.join(has)}")


def grants(session: Session) -> Iterator[Finding]:
    """Whether the rights are as the package gives them."""
    wrong = session.run(inspect.wrong_grants())
    if wrong:
        yield Finding("grants", FAIL, "; ".join(wrong), "run `jobrunner migrate`, it grants and revokes again")
    else:
        yield Finding("grants", OK, "as the package gives them")


# -- the upkeep


def upkeep(session: Session) -> Iterator[Finding]:
    """When each part of the upkeep last ran, who is alive, and every warning of v_job_health (B72)."""
    for line in session.run(job_health()):
        if line.subject == "(upkeep)":
            yield _upkeep_part(line)
        elif line.subject == "(runners)":
            yield Finding("runners", WARN if line.warning else OK, f"{line.value} alive", line.warning)
        elif line.warning and line.subject != "(server)":
            yield Finding("jobs", WARN, f"{line.subject}: {line.item} {line.value}", line.warning)


def _upkeep_part(line: Health) -> Finding:
    """Three missed ticks are a failure; a schema that was just installed has had none yet."""
    state = OK if line.warning is None else WARN if line.value == "never" else FAIL
    return Finding(f"upkeep {line.item}", state, line.value, line.warning)


def cron(session: Session) -> Iterator[Finding]:
    """What pg_cron does; without it the runners do the upkeep (D17)."""
    installed, may_look = session.run(inspect.has_cron())
    if not installed:
        yield Finding("pg_cron", OK, "not installed: the runners do the upkeep")
    elif not may_look:
        yield Finding("pg_cron", OK, "installed; the login may not look into it")
    else:
        found = session.run(inspect.cron())
        if found.failed:
            remedy = "repair what it says; all runs stand in cron.job_run_details"
            yield Finding("pg_cron", WARN, f"last run failed: {found.failed}", remedy)
        elif found.inactive:
            remedy = "switch it on with cron.alter_job(jobid, active => true), or call mdm.unschedule_cleanup()"
            yield Finding("pg_cron", WARN, f"switched off: {', '.join(found.inactive)}", remedy)
        elif not found.active:
            said = "installed, nothing of ours is scheduled as far as the login sees: the runners do the upkeep"
            yield Finding("pg_cron", OK, said)
        else:
            yield Finding("pg_cron", OK, f"runs {', '.join(found.active)}")


def vacuum(session: Session) -> Iterator[Finding]:
    """Whether dead rows of aa_job are cleaned as quickly as the design needs."""
    found = session.run(inspect.storage())
    if found is None:
        return
    rows = f"{found.dead_rows} dead rows, {found.live_rows} live"
    other = [
        f"{name} = {found.options.get(name, 'unset')}" for name in VACUUM if found.options.get(name) != VACUUM[name]
    ]
    if not (found.autovacuum and found.track_counts) or found.options.get("autovacuum_enabled") in ("false", "off"):
        yield Finding("autovacuum", FAIL, f"off, {rows}", "turn on autovacuum and track_counts")
    elif other:
        wanted = ", ".join(f"{name} = {value}" for name, value in VACUUM.items())
        yield Finding("autovacuum", WARN, f"{'; '.join(other)}, {rows}", f"give mdm.aa_job its settings back: {wanted}")
    else:
        yield Finding("autovacuum", OK, rows)


def snapshot(session: Session) -> Iterator[Finding]:
    """What holds the oldest snapshot; dead rows younger than it cannot be cleaned."""
    found = session.run(inspect.snapshot())
    if found.holder is not None and found.age_seconds > SNAPSHOT_SECONDS:
        yield Finding(
            "oldest snapshot", WARN, f"{found.holder}, {found.age_seconds:.0f} s", "end it if nobody needs it"
        )
    elif not found.sees_all:
        remedy = "grant pg_read_all_stats to the login of whoever watches"
        yield Finding("oldest snapshot", WARN, "other logins' sessions cannot be seen", remedy)
    else:
        yield Finding("oldest snapshot", OK, f"{found.holder}, {found.age_seconds:.0f} s" if found.holder else "none")


CHECKS: Final = (
    ("roles", roles),
    ("grants", grants),
    ("upkeep", upkeep),
    ("pg_cron", cron),
    ("autovacuum", vacuum),
    ("oldest snapshot", snapshot),
)
