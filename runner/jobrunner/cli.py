"""The command line: without a subcommand it runs the pool."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Container
from enum import Enum
from time import monotonic
from typing import Annotated, Any, Final, NoReturn, cast
from uuid import UUID

import psycopg
import typer

from jobrunner import __version__, commands, dlq, doctor, logs, operate, progress
from jobrunner.buckets import Cap
from jobrunner.db.connect import Target, detect
from jobrunner.errors import InterruptedCommand, JobrunnerError, UsageError
from jobrunner.exporter import Export, exporting
from jobrunner.handlers.needs import able
from jobrunner.handlers.registry import choose, load_handlers
from jobrunner.logs import event
from jobrunner.pool import Pool
from jobrunner.settings import checked_dsn, connect_error, resolve_dsn
from jobrunner.shared import Mode, Plan
from jobrunner.signals import Signals, reset_in_children
from jobrunner.wake import Wake

EPILOG: Final = (
    "Exit codes: 0 all went well; 1 an error; 2 the command line or the environment is wrong; 3 the schema is "
    "missing, older, newer or not migrated; 4 the database cannot be reached; 5 ended before its jobs had, they were "
    "given back; 70 more handlers are stuck than there are slots; 130 interrupted by Ctrl-C."
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
for part in (commands, dlq, operate, doctor):
    part.register(app)

# What the command line's parser raises; typer brings a parser of its own, or uses the package click, as it likes.
_ParseError: Final = cast(type[Any], typer.BadParameter.__mro__[2])


class LogFormat(Enum):
    """Forms of the log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """What is logged at least."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jobrunner {__version__}")
        raise typer.Exit


Kinds = Annotated[
    list[str] | None, typer.Option(help="Job kinds to work on: repeated or a,b. Default: all that have a handler.")
]
Tenants = Annotated[list[str] | None, typer.Option(help="Tenants to work for, by id: repeated or a,b. Default: all.")]
Concurrency = Annotated[int, typer.Option(min=1, max=256, help="How many jobs run at the same time.")]
Drain = Annotated[bool, typer.Option("--drain", help="End when nothing is due or running.")]
DrainAll = Annotated[bool, typer.Option("--drain-all", help="As --drain, but wait for retries too.")]
Once = Annotated[bool, typer.Option("--once", help="End after one job, or when none is due.")]
ListenDsn = Annotated[str | None, typer.Option(help="Direct connection for LISTEN, where --dsn leads to a pooler.")]
Pooler = Annotated[bool, typer.Option("--pooler", help="--dsn leads to a transaction pooler.")]
Grace = Annotated[float, typer.Option(min=0, help="Seconds that running jobs get after the first signal.")]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Serve /metrics, /healthz, /readyz on this port; 0 = any free one.")
]
MetricsHost = Annotated[str, typer.Option(help="Address on which the metrics are served.")]
TenantLabel = Annotated[
    bool, typer.Option("--tenant-label/--no-tenant-label", help="Whether the gauges tell tenants apart.")
]
Format = Annotated[LogFormat, typer.Option(help="Form of the log.")]
Level = Annotated[LogLevel | None, typer.Option(help="Default: info; warning when draining.")]
CapOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Limit of a provider: KIND=RPS or KIND=RPS/BURST, over all tenants of this process; repeated or a,b.",
        envvar="JOBRUNNER_CAPS",
    ),
]
Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")]


@app.callback(invoke_without_command=True, epilog=EPILOG)
def run(
    context: typer.Context,
    kinds: Kinds = None,
    tenants: Tenants = None,
    concurrency: Concurrency = 4,
    drain: Drain = False,
    drain_all: DrainAll = False,
    once: Once = False,
    handlers: commands.Modules = None,
    dsn: commands.Dsn = None,
    listen_dsn: ListenDsn = None,
    pooler: Pooler = False,
    cap: CapOption = None,
    grace: Grace = 30.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    tenant_label: TenantLabel = True,
    log_format: Format = LogFormat.TEXT,
    log_level: Level = None,
    version: Version = False,
) -> None:
    """Run jobs: claim them from the database, run their handlers, end them. SIGTERM and SIGINT end it in good order."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context.invoked_subcommand, context)
        return
    mode = _mode(drain=drain, drain_all=drain_all, once=once)
    logs.setup(log_format.value, _level(log_level, mode))
    target = _target(Target(resolve_dsn(dsn, os.environ), pooler))
    listen = Target(checked_dsn(listen_dsn, "--listen-dsn")) if listen_dsn else None if target.pooler else target
    names, tenant_ids = commands.names(kinds, "--kinds"), _tenants(tenants)
    known = load_handlers(commands.names(handlers, "--handlers"))
    plan = Plan(
        target=target,
        handlers=able(choose(known, names), os.environ, named=bool(names)),
        tenant_ids=tenant_ids,
        concurrency=1 if mode is Mode.ONCE else concurrency,
        mode=mode,
        grace_seconds=grace,
        caps=_caps(cap, known),
        listen=listen,
    )
    run_pool(plan, Export(metrics_host, metrics_port, tenant_label) if metrics_port is not None else None)


def run_pool(plan: Plan, export: Export | None = None) -> None:
    """Run the pool under the signals, and show how it goes."""
    wake, started = Wake(), monotonic()
    signals = Signals(wake)
    reset_in_children()
    with signals.installed(), exporting(export, plan.target, plan.kinds) as (meter, health):
        pool = Pool(plan, wake, signals, meter)
        health.alive, health.ready = (lambda: pool.alive), (lambda: pool.ready)
        due = sum(each.due for each in pool.prepare())
        if plan.mode is Mode.SERVE:
            pool.run(progress.nobody)
            return
        try:
            with progress.shown(sys.stdout, due) as watch:
                pool.run(watch)
        finally:
            print(progress.summary(pool.tally, monotonic() - started), flush=True)


def main() -> NoReturn:
    """Run the command line; every error is one line that names the remedy."""
    threading.excepthook = logs.log_death
    code = execute(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        os._exit(code)  # a thread is stuck in a handler: nothing in this process can end it
    sys.exit(code)


def execute(arguments: list[str]) -> int:
    """Run a command line; give the exit code."""
    try:
        code = int(app(arguments, prog_name="jobrunner", standalone_mode=False) or 0)
    except JobrunnerError as error:
        return _complain(str(error), error.exit_code)
    except _ParseError as error:
        where = getattr(error.ctx, "command_path", "jobrunner")
        return _complain(f"{error.format_message()} (see {where} --help)", UsageError.exit_code)
    except typer.Abort:
        code = InterruptedCommand.exit_code
    except psycopg.OperationalError as error:
        found = connect_error(error)
        return _complain(str(found), found.exit_code)
    except psycopg.Error as error:
        return _complain(commands.explain(error), JobrunnerError.exit_code)
    return _complain("interrupted", code) if code == InterruptedCommand.exit_code else code


def _complain(message: str, code: int) -> int:
    print(f"jobrunner: {' '.join(message.split())}", file=sys.stderr)
    return code


def _refuse_options_before(subcommand: str, context: typer.Context) -> None:
    """Raise UsageError for an option of the pool: a subcommand would do without it, perhaps on another database."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} before {subcommand} has no effect: write the options of {subcommand} behind it")


def _target(given: Target) -> Target:
    """The target as it is: a pooler that the command line does not mention is seen, and said."""
    target = detect(given)
    if target != given:
        event(logging.WARNING, "pooler_detected", remedy="--pooler, and --listen-dsn for a direct connection to LISTEN")
    return target


def _mode(*, drain: bool, drain_all: bool, once: bool) -> Mode:
    if drain + drain_all + once > 1:
        raise UsageError("--drain, --drain-all and --once exclude each other: choose one")
    return Mode.ONCE if once else Mode.DRAIN_ALL if drain_all else Mode.DRAIN if drain else Mode.SERVE


def _level(level: LogLevel | None, mode: Mode) -> int:
    if level is not None:
        return logging.getLevelNamesMapping()[level.name]
    return logging.INFO if mode is Mode.SERVE else logging.WARNING


def _caps(values: list[str] | None, known: Container[str]) -> dict[str, Cap]:
    """The limits of the providers (S7.3); one that no handler will ever meet is perhaps misspelt."""
    caps: dict[str, Cap] = {}
    for name in commands.names(values, "--cap"):
        kind, _, limit = name.partition("=")
        rps, _, burst = limit.partition("/")
        try:
            cap = Cap(float(rps), int(burst or max(1, float(rps))))
        except (ValueError, OverflowError):
            raise UsageError(f"--cap {name!r} is no limit: write kind=10, or kind=10/20 for a burst of 20") from None
        if not kind or not 0 < cap.rps <= 1_000_000 or not 1 <= cap.burst <= 1_000_000:
            raise UsageError(f"--cap {name!r} is out of range: more than 0 and up to 1000000 jobs/s, bursts from 1")
        if kind not in known:
            event(logging.WARNING, "cap_of_no_handler", job_kind=kind, remedy="correct the kind in --cap")
        caps[kind] = cap
    return caps


def _tenants(values: list[str] | None) -> tuple[UUID, ...] | None:
    """The tenants to work for; None = all (D13)."""
    names = commands.names(values, "--tenants")
    return tuple(commands.tenant_id(name) for name in names) or None
