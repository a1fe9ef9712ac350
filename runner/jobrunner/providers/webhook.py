"""What a webhook is: its signature after the Standard Webhooks convention, its settings, and who carries it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple, Protocol

from jobrunner.errors import UsageError
from jobrunner.providers.environ import number


class Answer(NamedTuple):
    """The HTTP status (None = there was no answer) and the error (None = 2xx)."""

    status: int | None
    error: str | None


class Poster(Protocol):
    """What outbox_dispatch needs of whoever carries its webhooks."""

    def post(self, url: str, secret: str, webhook_id: str, body: str) -> Answer:
        """Post one webhook; never raises for what the endpoint does. May be called by several threads."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """From the variables JOBRUNNER_WEBHOOK_*."""

    timeout_seconds: float
    per_endpoint: int
    allowed: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WebhookSettings:
        """Read the settings; raises UsageError that names the variable which is wrong."""
        per_endpoint = number(environ, "JOBRUNNER_WEBHOOK_PER_ENDPOINT", 8)
        if not 1 <= per_endpoint <= 1000:
            raise UsageError("JOBRUNNER_WEBHOOK_PER_ENDPOINT must lie between 1 and 1000")
        return cls(
            timeout_seconds=min(number(environ, "JOBRUNNER_WEBHOOK_TIMEOUT_SECONDS", 10.0), 3600.0),
            per_endpoint=int(per_endpoint),
            allowed=_networks(environ.get("JOBRUNNER_WEBHOOK_ALLOW", "")),
        )


def signed(webhook_id: str, timestamp: int, content: bytes, secret: str) -> dict[str, str]:
    """The headers of Standard Webhooks: base64 of hmac-sha256 over `id.timestamp.body`. ValueError: no such secret."""
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    if not key:
        raise ValueError("the secret is empty")
    digest = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + content, hashlib.sha256)
    return {
        "content-type": "application/json",
        "user-agent": "mdm-jobs",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse comma-separated networks, for instance 10.1.0.0/16,127.0.0.1."""
    try:
        return tuple(ip_network(one.strip()) for one in text.split(",") if one.strip())
    except ValueError as error:
        raise UsageError(f"JOBRUNNER_WEBHOOK_ALLOW must be networks, for instance 10.1.0.0/16: {error}") from None
