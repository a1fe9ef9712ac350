"""The job kind outbox_dispatch (S2.4): posts what is due, several at a time, and records each when it is answered."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Final

from jobrunner.db.call import read, send
from jobrunner.db.outbox import Delivery, Posted, claim_deliveries, enqueue_next_dispatch, record_deliveries
from jobrunner.errors import Snooze, UsageError
from jobrunner.job import Context, Job
from jobrunner.providers.webhook import Poster, WebhookSettings

# Posts under way at a time in one run: most of the time they wait for the other side.
THREADS: Final = 16
# After an answer, for others to come: what is answered together is recorded in one commit, and runs commit in turns.
LINGER_SECONDS: Final = 0.01
SNOOZE_SECONDS: Final = 60.0


def outbox_dispatch(job: Job, ctx: Context) -> None:
    """Deliver all that is due; an empty run is a cheap success.

    Every transaction records what was answered and takes as much anew; the last one enqueues the next run if
    something is left, and carries finish_job (D24). What is recorded is never posted again; a crash repeats at most
    the posts that were under way, under the same webhook-id.
    """
    settings = _settings()
    run = Run(job, ctx, settings.per_endpoint)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="webhook") as threads:
        answered: Sequence[Posted] = ()
        under_way: set[Future[Posted]] = set()
        while True:
            taken = run.turn(answered, room=THREADS - len(under_way), last=not under_way)
            under_way |= {threads.submit(post, poster(settings), delivery) for delivery in taken}
            if not under_way:
                return
            wait(under_way, return_when=FIRST_COMPLETED)
            ended, under_way = wait(under_way, timeout=LINGER_SECONDS)
            answered = [future.result() for future in ended]


def _settings() -> WebhookSettings:
    """The settings of this runner; with wrong ones the job is not this runner's."""
    try:
        return WebhookSettings.from_environ(os.environ)
    except UsageError as error:
        raise Snooze(SNOOZE_SECONDS, str(error)) from error


class Run:
    """The database's side of one run."""

    def __init__(self, job: Job, ctx: Context, per_endpoint: int) -> None:
        self._lease = {"job_id": job.id, "lease_no": job.lease_no}
        self._ctx = ctx
        self._per_endpoint = per_endpoint

    def turn(self, answered: Sequence[Posted], room: int, last: bool) -> list[Delivery]:
        """Record what was answered and take up to `room` anew; nothing taken in the `last` turn ends the job."""
        with self._ctx.chunk() as chunk:
            if answered:
                send(chunk.connection, record_deliveries(**self._lease, results=answered))
            call = claim_deliveries(**self._lease, limit=room, per_endpoint=self._per_endpoint)
            taken = read(send(chunk.connection, call), call)
            if last and not taken:
                send(chunk.connection, enqueue_next_dispatch(**self._lease))
                chunk.finish()
            return taken


def post(poster: Poster, delivery: Delivery) -> Posted:
    """Post one delivery."""
    status, error = poster.post(delivery.url, delivery.secret, delivery.webhook_id, delivery.body)
    return Posted(delivery.event_id, delivery.endpoint_id, status, error)


@lru_cache(maxsize=1)
def poster(settings: WebhookSettings) -> Poster:
    """The poster of this process: its connections outlive the jobs."""
    from jobrunner.providers.http import HttpPoster  # httpx takes its time, and most commands need none of it

    return HttpPoster(settings)
