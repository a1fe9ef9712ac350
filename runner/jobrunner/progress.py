"""What a person sees of a drain: a bar on a terminal, plain lines in a pipe, and a closing line in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TextIO

from jobrunner.shared import Tally

LINE_EVERY_SECONDS: Final = 3.0

Watch = Callable[[Tally], None]


def nobody(tally: Tally) -> None:
    """Watch nothing."""


@contextmanager
def shown(out: TextIO, total: int) -> Iterator[Watch]:
    """Show the progress towards about `total` jobs for the time of a with block."""
    if out.isatty():
        with _bar(out, total) as watch:
            yield watch
    else:
        yield _lines(out, total)


def summary(tally: Tally, seconds: float) -> str:
    """The closing line."""
    lost = f", lost {tally.lost}" if tally.lost else ""
    return (
        f"done {tally.done}, failed {tally.failed}, released {tally.released}, dead {tally.dead}{lost}"
        f" in {seconds:.1f} s"
    )


@contextmanager
def _bar(out: TextIO, total: int) -> Iterator[Watch]:
    """A progress bar; what is logged meanwhile appears above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("jobs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[bad]}"),
    )
    with Progress(*columns, console=Console(file=out), transient=True) as progress:
        task = progress.add_task("jobs", total=total, bad="")

        def watch(tally: Tally) -> None:
            bad = f"failed {tally.failed}, dead {tally.dead}" if tally.failed or tally.dead else ""
            progress.update(task, completed=tally.ran, total=max(total, tally.ran), bad=bad)

        yield watch


def _lines(out: TextIO, total: int) -> Watch:
    """A line every few seconds."""
    next_at = monotonic() + LINE_EVERY_SECONDS

    def watch(tally: Tally) -> None:
        nonlocal next_at
        if monotonic() >= next_at:
            next_at = monotonic() + LINE_EVERY_SECONDS
            print(f"{tally.ran} of {max(total, tally.ran)} jobs", file=out, flush=True)

    return watch
