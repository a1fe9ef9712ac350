"""The scenarios by name. Each measures our system and, where there is one, a limit beside it, in the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from backlogs import backlog
from drains import drain
from enqueueing import enqueue
from imports import import_rows
from kit import Bench
from pickups import pickup
from reindexing import reindex
from retention import retention
from scaling import scale
from streams import held_snapshot, steady
from throttled import throttled
from webhooks import webhooks
from writes import write

SCENARIOS: Final[Mapping[str, Callable[[Bench], None]]] = {
    "enqueue": enqueue,
    "drain": drain,
    "write": write,
    "pickup": pickup,
    "steady": steady,
    "held-snapshot": held_snapshot,
    "backlog": backlog,
    "scale": scale,
    "throttled": throttled,
    "retention": retention,
    "import": import_rows,
    "webhooks": webhooks,
    "reindex": reindex,
}
