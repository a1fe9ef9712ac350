"""pgqueuer: setup | bulk N | worker. Needs pgqueuer, asyncpg and uvloop; BENCH_DSN leads to the database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from typing import Any, Final

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
from records import Records

DSN: Final = os.environ["BENCH_DSN"]
DEQUEUERS: Final = 2
BATCH: Final = 100


async def bulk(queries: Any, jobs: int) -> None:
    """Enqueue so many jobs."""
    for done in range(0, jobs, 1000):
        size = min(1000, jobs - done)
        await queries.enqueue(["noop"] * size, [b'{"t": 0}'] * size, [0] * size)


async def dequeuer(records: Records) -> Any:
    """Make one that takes jobs in batches."""
    made = PgQueuer(AsyncpgDriver(await asyncpg.connect(DSN)))

    @made.entrypoint("noop")
    async def noop(job: Any) -> None:
        records.add(float(json.loads(job.payload)["t"]))

    return made


async def work() -> None:
    """Work until SIGTERM."""
    records = Records()
    dequeuers = [await dequeuer(records) for _ in range(DEQUEUERS)]

    def stop() -> None:
        for each in dequeuers:
            each.shutdown.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await asyncio.gather(*[each.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=5)) for each in dequeuers])


async def main(command: str, count: str = "0") -> None:
    """Run a command."""
    queries = Queries(AsyncpgDriver(await asyncpg.connect(DSN)))
    if command == "setup":
        await queries.install()
        await queries.optimize_autovacuum()
    elif command == "bulk":
        await bulk(queries, int(count))
    else:
        await work()


uvloop.run(main(*sys.argv[1:]))
