"""The job kinds of the chaos suite, and what each of its jobs has to end in: status and number of effects."""

from __future__ import annotations

from typing import Final

CHUNKS: Final = 3
# kind -> its handler. Every window has a kind of its own, so that it meets its own jobs only.
WINDOWS: Final = {
    "w_claim_uncommitted": "effect",
    "w_claim_unanswered": "effect",
    "w_handler_begun": "effect",
    "w_handler_written": "effect",
    "w_handler_returned": "effect",
    "w_finish_uncommitted": "effect",
    "w_finish_unanswered": "effect",
    "w_batch_uncommitted": "noop",
    "w_batch_unanswered": "noop",
    "w_chunk_uncommitted": "chunks",
    "w_chunk_committed": "chunks",
    "w_last_chunk_uncommitted": "chunks",
    "w_last_chunk_unanswered": "chunks",
    "w_fail_uncommitted": "flaky",
    "w_fail_unanswered": "flaky",
    "w_release_uncommitted": "effect",
    "w_release_unanswered": "effect",
    "w_throttle_uncommitted": "effect",
    "w_heartbeat_uncommitted": "effect",
    "z_begun": "effect",
    "z_written": "effect",
    "z_chunks": "chunks",
    "busy": "busy",
    "silent": "effect",
    "after_return": "effect",
    "failover": "effect",
    "disk": "effect",
}
STORM: Final = {
    "s_effect": "effect",
    "s_noop": "noop",
    "s_chunks": "chunks",
    "s_flaky": "flaky",
    "s_poison": "poison",
    "s_timeouts": "timeouts",
}
# handler -> the status its jobs end in, and their effects
ENDS: Final = {
    "effect": ("done", 1),
    "busy": ("done", 1),
    "noop": ("done", 0),
    "chunks": ("done", CHUNKS),
    "flaky": ("done", 1),
    "poison": ("dlq", 0),
    "timeouts": ("done", 1),
}
