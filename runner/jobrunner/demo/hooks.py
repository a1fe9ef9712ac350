"""A webhook consumer on 127.0.0.1 that verifies what it gets with the package standardwebhooks, and keeps it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

from standardwebhooks import Webhook

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


@dataclass(frozen=True, slots=True)
class Received:
    """One request whose signature is right."""

    path: str
    webhook_id: str
    body: dict[str, Any]
    headers: dict[str, str]
    at: float


@dataclass(slots=True)
class Hooks:
    """The consumer: what it got, and how each path answers."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    at_once: dict[str, int] = field(default_factory=dict)  # the most requests that a path had under way at a time
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, path: str = "/ok", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def ids(self, path: str = "/ok") -> list[str]:
        """The webhook ids that a path got, in the order of arrival."""
        return [one.webhook_id for one in self.received if one.path == path]


def answer(status: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer for Hooks.answers."""

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return send


@contextmanager
def hooks() -> Iterator[Hooks]:
    """A consumer; every path answers 204 unless told otherwise."""
    consumer = Hooks()
    busy: dict[str, int] = {}

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            Webhook(SECRET).verify(content, headers)
            with consumer.lock:
                consumer.received.append(
                    Received(self.path, headers["webhook-id"], json.loads(content), headers, monotonic())
                )
                busy[self.path] = busy.get(self.path, 0) + 1
                consumer.at_once[self.path] = max(consumer.at_once.get(self.path, 0), busy[self.path])
            try:
                with suppress(OSError):
                    consumer.answers.get(self.path, answer(204))(self)
            finally:
                with consumer.lock:
                    busy[self.path] -= 1

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

    with Server(("127.0.0.1", 0), Request) as server:
        consumer.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield consumer
        finally:
            consumer.over.set()
            server.shutdown()
            thread.join()
