"""procrastinate: setup | bulk N | worker. Needs procrastinate, psycopg and uvloop; BENCH_DSN leads to the database."""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from typing import Final

import procrastinate
import uvloop
from records import Records

CONCURRENCY: Final = 20
app: Final = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_DSN"], min_size=1, max_size=CONCURRENCY)
)
records: Final = cache(Records)


@app.task(name="noop", queue="default")
async def noop(t: float) -> None:
    """Do nothing."""
    records().add(float(t))


async def bulk(jobs: int) -> None:
    """Enqueue so many jobs."""
    for done in range(0, jobs, 1000):
        await noop.batch_defer_async(*[{"t": 0} for _ in range(min(1000, jobs - done))])


async def main(command: str, count: str = "0") -> None:
    """Run a command."""
    async with app.open_async():
        if command == "setup":
            await app.schema_manager.apply_schema_async()
        elif command == "bulk":
            await bulk(int(count))
        else:
            await app.run_worker_async(
                queues=["default"],
                concurrency=CONCURRENCY,
                wait=True,
                delete_jobs="never",
                fetch_job_polling_interval=5,
            )


logging.disable(logging.WARNING)
uvloop.run(main(*sys.argv[1:]))
