"""The subcommand `dlq`: list, show, replay and discard dead jobs (S9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from jobrunner import commands
from jobrunner.commands import AsJson, Dsn, open_session
from jobrunner.db import operator
from jobrunner.db.call import Call
from jobrunner.db.session import Session
from jobrunner.errors import JobrunnerError, UsageError
from jobrunner.operate import (
    ADMIN,
    ID_MAX,
    MONITOR,
    Actor,
    JobId,
    Reason,
    Yes,
    confirmed,
    jobs_text,
    one_by_one,
    principal,
)
from jobrunner.output import show, show_json, show_one

PLATFORM: Final = "platform"
LIMIT_MAX: Final = 10_000  # of one call (D13)

Kind = Annotated[str | None, typer.Option(help="Jobs of this kind.")]
Tenant = Annotated[str | None, typer.Option(help="Jobs of this tenant, by id; `platform` = those of no tenant.")]
After = Annotated[str | None, typer.Option(help="Dead since: ISO 8601 with an offset.")]
Before = Annotated[str | None, typer.Option(help="Dead before: ISO 8601 with an offset.")]
Error = Annotated[str | None, typer.Option(help="Jobs whose last error contains this.")]
All = Annotated[bool, typer.Option("--all", help="Every dead job, where no filter is given.")]
Limit = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most so many jobs.")]
SomeIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID...]", min=1, max=ID_MAX, help="Ids of jobs; without them the filters say which."),
]

Bulk = Callable[..., Call[list[tuple[int, str]]]]


def register(app: typer.Typer) -> None:
    """Add the subcommands to the application."""
    group = typer.Typer(rich_markup_mode=None, help="Work the dead letter queue (S9).")
    group.command("list")(list_jobs)
    for command in (show_job, replay, discard):
        group.command(command.__name__.removesuffix("_job"))(command)
    app.add_typer(group, name="dlq")


def list_jobs(
    kind: Kind = None,
    tenant: Tenant = None,
    after: After = None,
    before: Before = None,
    error: Error = None,
    limit: Limit = 50,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List dead jobs, newest first."""
    filter = _filter(kind, tenant, after, before, error)
    call = operator.dead_jobs(
        job_kind=kind,
        tenant_id=filter.get("tenant_id"),
        platform=tenant == PLATFORM,
        after=filter.get("completed_after"),
        before=filter.get("completed_before"),
        error=error,
        limit=limit,
    )
    with open_session(dsn, MONITOR) as session:
        found = session.run(call)
    _say_none(found)
    if as_json:
        show_json([job._asdict() for job in found])
        return
    rows = [
        (job.id, job.job_kind, job.tenant_id, f"{job.attempts}/{job.max_attempts}", job.completed_at, job.last_error)
        for job in found
    ]
    show(["id", "kind", "tenant", "attempts", "died", "last_error"], rows)


def show_job(job: JobId, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show all of one dead job, and its history."""
    with open_session(dsn, MONITOR) as session:
        found = session.run(operator.dead_jobs(job_id=job, limit=1))
        if not found:
            raise JobrunnerError(f"job {job} is not in the dlq: see `jobrunner explain {job}`")
        history = session.run(operator.job_history(job_id=job))
    if as_json:
        show_json(found[0]._asdict() | {"history": [moment._asdict() for moment in history]})
        return
    show_one(found[0]._asdict())
    typer.echo("")
    show(["at", "event", "actor", "login", "detail"], history)


def replay(
    jobs: SomeIds = None,
    kind: Kind = None,
    tenant: Tenant = None,
    after: After = None,
    before: Before = None,
    error: Error = None,
    every: All = False,
    limit: Limit = 1000,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Let dead jobs run again, with no attempts used. Without --yes nothing changes before you have confirmed it."""
    common = {"reason": reason, "actor": principal(actor)}
    chosen = _filter(kind, tenant, after, before, error, every=every)
    _act(
        "replay", operator.replay_job, operator.replay_jobs, jobs, chosen, limit, common, dsn, yes=yes, as_json=as_json
    )


def discard(
    jobs: SomeIds = None,
    kind: Kind = None,
    tenant: Tenant = None,
    after: After = None,
    before: Before = None,
    error: Error = None,
    every: All = False,
    limit: Limit = 1000,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Delete jobs for good; the audit keeps their payloads. Without --yes nothing changes before you confirm it."""
    common = {"reason": reason, "actor": principal(actor)}
    chosen = _filter(kind, tenant, after, before, error, every=every)
    _act(
        "discard",
        operator.discard_job,
        operator.discard_jobs,
        jobs,
        chosen,
        limit,
        common,
        dsn,
        yes=yes,
        as_json=as_json,
    )


def _act(
    verb: str,
    one: Callable[..., Call[str]],
    many: Bulk,
    jobs: list[int] | None,
    chosen: dict[str, Any],
    limit: int,
    common: Mapping[str, Any],
    dsn: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Do to the jobs named, or to those that the filter chooses, what both verbs have in common."""
    _check_choice(jobs, chosen)
    with open_session(dsn, ADMIN) as session:
        if jobs:
            one_by_one(session, jobs, verb, lambda job_id: one(job_id=job_id, **common), yes=yes, as_json=as_json)
        else:
            _in_bulk(session, verb, many, {"filter": chosen, "limit": limit, **common}, yes=yes, as_json=as_json)


def _in_bulk(
    session: Session, verb: str, function: Bulk, options: Mapping[str, Any], *, yes: bool, as_json: bool
) -> None:
    """Show what would be done, ask, then do it; with --yes at once."""
    if not yes:
        planned = session.run(function(**options, dry_run=True))
        _show_outcomes(planned, options["limit"], as_json=as_json)
        count = sum(outcome.startswith("would_") for _, outcome in planned)
        which = jobs_text(count) if count == len(planned) else f"{count} of these {jobs_text(len(planned))}"
        if not count or not confirmed(f"{verb} {which}?"):
            return
    _show_outcomes(session.run(function(**options, dry_run=False)), options["limit"], as_json=as_json)


def _show_outcomes(outcomes: list[tuple[int, str]], limit: int, *, as_json: bool) -> None:
    show(["job_id", "outcome"], outcomes, as_json=as_json)
    _say_none(outcomes)
    if len(outcomes) >= limit:
        typer.echo(f"the limit of {limit} jobs was reached: there may be more", err=True)


def _say_none(found: Sequence[object]) -> None:
    """Say that nothing was found, perhaps of a kind that is misspelt, where a table of no lines says little."""
    if not found:
        typer.echo("no dead job matches", err=True)


def _filter(
    kind: str | None,
    tenant: str | None,
    after: str | None,
    before: str | None,
    error: str | None,
    *,
    every: bool = False,
) -> dict[str, Any]:
    """The filter that the options make, as replay_jobs and discard_jobs take it; raises UsageError."""
    filter: dict[str, Any] = {}
    if kind is not None:
        filter["job_kind"] = kind
    if tenant is not None:
        filter["tenant_id"] = None if tenant == PLATFORM else str(commands.tenant_id(tenant))
    if after is not None:
        filter["completed_after"] = commands.instant(after).isoformat()
    if before is not None:
        filter["completed_before"] = commands.instant(before).isoformat()
    if error == "":
        raise UsageError("--error is empty, and every error contains that: name a part of it, or leave it out")
    if error is not None:
        filter["last_error"] = error
    return filter | ({"all": True} if every else {})


def _check_choice(jobs: list[int] | None, filter: Mapping[str, Any]) -> None:
    """Refuse both and neither: a filter beside ids would be left out silently, none would mean all."""
    if jobs and filter:
        raise UsageError("ids and filters exclude each other: name jobs, or say which by filters")
    if not jobs and not filter:
        raise UsageError("which jobs? name ids, give a filter such as --kind, or say --all")
