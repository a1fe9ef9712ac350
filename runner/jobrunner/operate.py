"""The subcommands of an operator: pause, resume, explain, stop. Each calls one function of schema mdm (S9, D12)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import psycopg
import typer

from jobrunner import commands
from jobrunner.commands import AsJson, Dsn, open_session
from jobrunner.db.call import Call
from jobrunner.db.operator import State, explain_job, get_job, pause_kind, resume_kind, stop_job
from jobrunner.db.session import Session
from jobrunner.errors import JobrunnerError, UsageError
from jobrunner.output import cell, show, show_json

ID_MAX: Final = 2**63 - 1
ADMIN, MONITOR = "mdm_admin", "mdm_monitor"
OURS: Final = "MJ"  # class of the SQLSTATEs that say what is in the way of one job

JobId = Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="Id of the job.")]
JobIds = Annotated[list[int], typer.Argument(metavar="ID...", min=1, max=ID_MAX, help="Ids of the jobs.")]
Reason = Annotated[str | None, typer.Option(help="Why; it is kept in the audit.")]
Actor = Annotated[
    str | None, typer.Option(help="Principal on whose behalf: the id of one. Default: that of the login.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


class Outcome(NamedTuple):
    """What came of a job; with a remedy where it was refused."""

    job_id: int
    outcome: str
    remedy: str | None


def register(app: typer.Typer) -> None:
    """Add the subcommands to the application."""
    for command in (pause, resume, explain, stop):
        app.command()(command)


def pause(
    kind: str,
    until: Annotated[str | None, typer.Option(help="ISO 8601 with an offset. Default: until resumed.")] = None,
    reason: Reason = None,
    actor: Actor = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Claim no more jobs of a kind; enqueue works, what runs goes on."""
    when = commands.instant(until) if until is not None else None
    if when is not None and when <= datetime.now(UTC):
        raise UsageError(f"{until} has passed: name a time to come, or open the kind with `jobrunner resume {kind}`")
    call = pause_kind(job_kind=kind, until=when, reason=reason, actor=principal(actor))
    with open_session(dsn, ADMIN) as session:
        session.run(call)
    if as_json:
        show_json({"kind": kind, "state": "paused", "until": when})
        return
    typer.echo(f"{kind} is paused {f'until {cell(when)}' if when else f'until `jobrunner resume {kind}`'}")


def resume(kind: str, actor: Actor = None, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Claim jobs of a kind again."""
    with open_session(dsn, ADMIN) as session:
        session.run(resume_kind(job_kind=kind, actor=principal(actor)))
    if as_json:
        show_json({"kind": kind, "state": "open"})
        return
    typer.echo(f"{kind} is open")


def explain(job: JobId, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Say why a job is not running: every reason that holds."""
    with open_session(dsn, MONITOR) as session:
        reasons = session.run(explain_job(job_id=job))
    show(["reason", "detail", "until"], reasons, as_json=as_json)


def stop(
    jobs: JobIds,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Mark jobs as broken for good (status failed). A running one loses its lease, its writes are rolled back."""
    who = principal(actor)

    def act(job_id: int) -> Call[str]:
        return stop_job(job_id=job_id, reason=reason, actor=who)

    with open_session(dsn, ADMIN) as session:
        one_by_one(session, jobs, "stop", act, yes=yes, as_json=as_json)


def one_by_one(
    session: Session, jobs: Sequence[int], verb: str, act: Callable[[int], Call[str]], *, yes: bool, as_json: bool
) -> None:
    """Show the jobs, ask, then act on each of them; raises JobrunnerError when any was, or would be, refused."""
    jobs = list(dict.fromkeys(jobs))
    if not yes:
        rehearsed = [_outcome(session.rehearse, job_id, act(job_id)) for job_id in jobs]
        if any(found.remedy for found in rehearsed):
            show(Outcome._fields, [found for found in rehearsed if found.remedy], as_json=as_json)
            raise JobrunnerError(f"nothing was changed: {_refused(rehearsed)}")
        _show_states([(job_id, session.run(get_job(job_id=job_id))) for job_id in jobs], as_json=as_json)
        if not confirmed(f"{verb} {jobs_text(len(jobs))}?"):
            return
    outcomes = [_outcome(session.run, job_id, act(job_id)) for job_id in jobs]
    show(Outcome._fields, outcomes, as_json=as_json)
    if any(found.remedy for found in outcomes):
        raise JobrunnerError(_refused(outcomes))


def confirmed(question: str) -> bool:
    """Ask on a terminal; elsewhere nothing is done without --yes, and that is said."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm(question, err=True)
    typer.echo("nothing was changed: add --yes to do it", err=True)
    return False


def principal(text: str | None) -> UUID | None:
    """Parse the id of a principal; raises UsageError."""
    try:
        return UUID(text) if text is not None else None
    except ValueError:
        raise UsageError(f"{text!r} is no principal's id: use the id (a UUID) of one, or leave --actor out") from None


def _outcome(run: Callable[[Call[str]], str], job_id: int, call: Call[str]) -> Outcome:
    """Act on one job: its outcome, or what is in the way and the remedy."""
    try:
        return Outcome(job_id, run(call), None)
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith(OURS):
            raise
        said, hint = f"{error.diag.message_primary} [{error.sqlstate}]", error.diag.message_hint
        return Outcome(job_id, said, hint or "see `jobrunner explain`")


def _refused(outcomes: Sequence[Outcome]) -> str:
    """Say how many jobs were refused."""
    refused = sum(found.remedy is not None for found in outcomes)
    return f"{jobs_text(refused)} of {len(outcomes)} could not be acted on: see the remedies above"


def _show_states(states: Sequence[tuple[int, State | None]], *, as_json: bool) -> None:
    """Show where jobs stand."""
    head = ["job_id", "kind", "tenant", "status", "attempts", "last_error"]
    rows = [
        (job_id, None, None, "gone", None, None)
        if state is None
        else (job_id, state.job_kind, state.tenant_id, state.status, state.attempts, state.last_error)
        for job_id, state in states
    ]
    show(head, rows, as_json=as_json)


def jobs_text(count: int) -> str:
    """Write a number of jobs."""
    return f"{count} job" if count == 1 else f"{count} jobs"
