"""Settings out of the environment: what is missing or wrong becomes one line that names the variable."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jobrunner.errors import UsageError


def required(environ: Mapping[str, str], name: str, what: str) -> str:
    """Return a variable; raises UsageError when it is not set. `what` says what to set it to."""
    value = environ.get(name, "").strip()
    if not value:
        raise UsageError(f"{name} is not set: set it to {what}")
    return value


def number(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return a variable as a number above 0; raises UsageError when it is none."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"{name} is {text!r}: set it to a number above 0, or not at all for {default:g}")
    return value
