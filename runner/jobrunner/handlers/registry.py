"""Where handlers come from: this package, entry points of others, and the option --handlers."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from jobrunner.errors import UsageError
from jobrunner.handlers import HANDLERS
from jobrunner.job import Handler
from jobrunner.outcome import outcome_of

GROUP: Final = "jobrunner.handlers"


def load_handlers(modules: Iterable[str]) -> dict[str, Handler]:
    """Return all handlers by kind; of two for one kind the one named on the command line wins, then the entry point.

    Raises UsageError when a module cannot be imported or gives no usable handlers.
    """
    found: dict[str, Handler] = dict(HANDLERS)
    for point in entry_points(group=GROUP):
        source = f"entry point {point.name} of group {GROUP}"
        found |= _handlers_of(_loaded(source, point.load), point.name, source)
    names = list(modules)
    if names and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does: a module beside the user is found
    for name in names:
        source = f"--handlers {name}"
        if name.endswith(".py") or "/" in name:
            raise UsageError(f"{source} is a file: name its module, {Path(name).stem}; PYTHONPATH has its directory")
        found |= _handlers_of(_loaded(source, lambda name=name: importlib.import_module(name)), name, source)
    return found


def choose(handlers: Mapping[str, Handler], kinds: Iterable[str]) -> dict[str, Handler]:
    """Return the handlers of these kinds, all of them when none is named; UsageError for a kind without one (B81)."""
    wanted = list(dict.fromkeys(kinds)) or list(handlers)
    missing = [kind for kind in wanted if kind not in handlers]
    if missing:
        raise UsageError(
            f"no handler for kind {', '.join(missing)}: there are handlers for {', '.join(sorted(handlers))}"
            " (--handlers MODULE brings more)"
        )
    return {kind: handlers[kind] for kind in wanted}


def _loaded(source: str, load: Any) -> Any:
    """Import what a source names."""
    try:
        return load()
    except SyntaxError as error:
        raise UsageError(f"{source} cannot be imported: {error}: correct that line") from error
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{source} cannot be imported: {error}: is it installed, or on PYTHONPATH?") from error
    except (Exception, SystemExit) as error:  # the import runs the code of others
        found = outcome_of(error)
        raise UsageError(f"{source} cannot be imported: {found.text}: see {found.where}") from error


def _handlers_of(value: Any, name: str, source: str) -> dict[str, Handler]:
    """Read a module with HANDLERS, a mapping, or a single handler whose entry point is named like its kind."""
    table = getattr(value, "HANDLERS", value)
    if callable(table) and not isinstance(table, Mapping):
        table = {name: table}
    if not isinstance(table, Mapping) or not table:
        raise UsageError(f"{source} gives no handlers: it needs a dict HANDLERS of job kind to function")
    for kind, handler in table.items():
        if not isinstance(kind, str):
            raise UsageError(f"{source}: the kind {kind!r} is no text: write it in quotes")
        if not _is_plain(handler):
            raise UsageError(f"{source}: the handler of {kind} must be a plain function of (job, ctx)")
    return dict(table)


def _is_plain(handler: Any) -> bool:
    """Whether it can be called with two arguments, and does its work when it is called."""
    if not callable(handler) or inspect.iscoroutinefunction(handler) or inspect.isgeneratorfunction(handler):
        return False
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # written in C, it does not tell
        return True
    return True
