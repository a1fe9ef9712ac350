"""The end of the grace period: what still runs is given back, and its handlers lose their connections (design 4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Final

import psycopg

from jobrunner.db.connect import Target
from jobrunner.db.session import Session
from jobrunner.db.worker import finish_jobs, release_jobs
from jobrunner.ending import tell_finished, tell_released
from jobrunner.logs import event
from jobrunner.outage import first_line
from jobrunner.shared import Tally
from jobrunner.tray import Hold, Severed, Tray, leases

GIVE_BACK_SECONDS: Final = 1.5  # the process must end in time, whatever the database does


def give_back(target: Target, trays: Iterable[Tray], tally: Tally) -> bool:
    """Take everything out of the trays and give it back with its attempts; False when time ran out before that."""
    done: list[Hold] = []
    unrun: list[Hold] = []
    severed: list[Severed] = []
    for tray in trays:
        unrun += tray.withdraw()
        current = tray.running()
        if current is not None:
            taken, conn = tray.take(current)
            unrun += [current] if taken else []
            severed.append(conn)
        done += tray.take_done()
    thread = threading.Thread(target=_tell, args=(target, done, unrun, severed, tally), daemon=True)
    thread.start()
    thread.join(GIVE_BACK_SECONDS)
    return not thread.is_alive()


def _tell(
    target: Target, done: Sequence[Hold], unrun: Sequence[Hold], severed: Sequence[Severed], tally: Tally
) -> None:
    """Tell the database, on a connection of its own; what cannot be told is recovered after the TTL (S8)."""
    session = Session(target, "leaving")
    try:
        if unrun:
            session.run(release_jobs(**leases(unrun)))
            tell_released(unrun, "the runner ends", tally)
        if done:
            accepted = session.run(finish_jobs(**leases(done)))
            tell_finished(session, done, accepted, tally)
    except psycopg.Error as error:
        event(logging.ERROR, "jobs_left_to_recovery", count=len(unrun) + len(done), error=first_line(error))
    for cut in severed:
        if cut is not None:
            cut.cancel(timeout_seconds=0.2)
    session.close()
