"""A webhook consumer that costs as little as possible: one thread, kept connections, 204 to every post, and a count."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Endpoint:
    """Where it listens, and how many posts it has answered."""

    port: int = 0
    posts: int = 0


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """Answer on 127.0.0.1 until the end."""
    made, ready, loop = Endpoint(), Event(), asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = LENGTH.search(head)
                await reader.readexactly(int(found[1]) if found else 0)
                made.posts += 1
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        made.port = server.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        loop.create_task(serve())
        loop.run_forever()

    thread = Thread(target=run, daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
