"""Posts webhooks with httpx: no redirects, guarded addresses, one deadline a post."""

from __future__ import annotations

import time
import weakref
from typing import Final

import httpx

from jobrunner.providers.guard import GuardedTransport, deadline
from jobrunner.providers.webhook import Answer, WebhookSettings, signed

# What is read of an answer: enough to keep the connection for the next post, and to say what went wrong.
READ_BYTES: Final = 16_384
ERROR_CHARACTERS: Final = 300


class HttpPoster:
    """Posts with httpx (Poster); a process needs one, connections are kept."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._timeout_seconds = settings.timeout_seconds
        # no proxy of the environment: it would connect where the guard does not see it
        self._client = httpx.Client(
            transport=GuardedTransport(settings.allowed),
            timeout=settings.timeout_seconds,
            follow_redirects=False,
            trust_env=False,
        )
        weakref.finalize(self, self._client.close)

    def post(self, url: str, secret: str, webhook_id: str, body: str) -> Answer:
        """Post one webhook within the timeout, everything included (B110, B113)."""
        content = body.encode()
        try:
            if httpx.URL(url).userinfo:
                return Answer(None, "the address has a user name in it")
            headers = signed(webhook_id, int(time.time()), content, secret)
            with deadline(self._timeout_seconds):
                return self._answer(url, headers, content)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return Answer(None, _clean(f"{type(error).__name__}: {error}"))

    def close(self) -> None:
        """Close what is kept open."""
        self._client.close()

    def _answer(self, url: str, headers: dict[str, str], content: bytes) -> Answer:
        """Post, and read a little of the answer."""
        with self._client.stream("POST", url, headers=headers, content=content) as response:
            start, size = b"", 0
            for part in response.iter_raw():
                start, size = start or part[:ERROR_CHARACTERS], size + len(part)
                if size > READ_BYTES:
                    break
            if response.is_success:
                return Answer(response.status_code, None)
            return Answer(
                response.status_code, _clean(f"HTTP {response.status_code}: {start.decode('utf-8', 'replace')}")
            )


def _clean(text: str) -> str:
    """A short text that can be stored."""
    return text.replace("\x00", "")[:ERROR_CHARACTERS]
