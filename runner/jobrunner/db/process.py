"""What a process says of itself and has to know: the registry of runners, notifications, settings and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from jobrunner.db.call import Call, nothing


class KindSettings(NamedTuple):
    """What the runner has to know of a kind."""

    job_kind: str
    stale_ttl_seconds: float
    handler_timeout_seconds: float | None
    paused: bool


class Unserved(NamedTuple):
    """A tenant that no job will come of, as things stand; `problem` says why."""

    tenant_id: str
    problem: str


class RateLimit(NamedTuple):
    """The rate limit of a tenant and kind (S7.2); `problem` says why it cannot be used."""

    tenant_id: str
    job_kind: str
    rps: float | None
    burst: int | None
    problem: str | None


def announce_runner(
    *, runner_id: str, kinds: Sequence[str], tenant_ids: Sequence[UUID] | None, hungry: bool
) -> Call[None]:
    """Write this process into the registry of runners (design 5.5)."""
    return Call(
        """select mdm.announce_runner(p_runner_id => %(runner_id)s, p_kinds => %(kinds)s::text[],
             p_tenant_ids => %(tenant_ids)s::uuid[], p_hungry => %(hungry)s)""",
        nothing,
        {
            "runner_id": runner_id,
            "kinds": list(kinds),
            "tenant_ids": list(tenant_ids) if tenant_ids is not None else None,
            "hungry": hungry,
        },
    )


def sign_off(*, runner_id: str) -> Call[None]:
    """Take this process out of the registry of runners, if it is there."""
    return announce_runner(runner_id=runner_id, kinds=(), tenant_ids=None, hungry=False)


def listen() -> Call[None]:
    """Hear of new jobs on this connection (design 5.5); the payload of a notification is the kind."""
    return Call("listen mdm_jobs", nothing)


def notify(*, payload: str) -> Call[None]:
    """Send a notification on the channel of new jobs: how a runner tests that it would hear of one (B59)."""
    return Call("select pg_notify('mdm_jobs', %(payload)s)", nothing, {"payload": payload})


def job_kind_settings(*, kinds: Sequence[str]) -> Call[list[KindSettings]]:
    """Read what the runner has to know of its kinds; an unregistered kind gives no row (D14)."""
    return Call(
        """select s.job_kind, date_part('epoch', s.stale_ttl),
             date_part('epoch', s.handler_timeout), s.paused
           from mdm.job_kind_settings(p_kinds => %(kinds)s::text[]) s""",
        lambda rows: [KindSettings._make(row) for row in rows],
        {"kinds": list(kinds)},
    )


def rate_limits(*, kinds: Sequence[str]) -> Call[list[RateLimit]]:
    """Read the rate limits of the tenants that have one (S7.2)."""
    return Call(
        """select r.tenant_id::text, r.job_kind, r.rps::float8, r.burst, r.problem
           from mdm.rate_limits(p_kinds => %(kinds)s::text[]) r""",
        lambda rows: [RateLimit._make(row) for row in rows],
        {"kinds": list(kinds)},
    )


def check_tenants(*, tenant_ids: Sequence[UUID]) -> Call[list[Unserved]]:
    """Find the tenants of which this login gets no jobs: mistyped, not made yet, or not its own (S3.3)."""
    return Call(
        """select c.tenant_id::text, c.problem
           from mdm.check_tenants(p_tenant_ids => %(tenant_ids)s::uuid[]) c""",
        lambda rows: [Unserved._make(row) for row in rows],
        {"tenant_ids": list(tenant_ids)},
    )
