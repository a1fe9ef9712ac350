"""The end of the grace period: what still runs is given back, and its handlers lose their connections (design 4)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import psycopg

from jobrunner.db.session import Session
from jobrunner.db.worker import finish_jobs, release_jobs
from jobrunner.ending import tell_finished, tell_released
from jobrunner.shared import Shared
from jobrunner.tray import Hold, Severed, Tray, leases

GIVE_BACK_SECONDS: Final = 2.5  # the process must end in time, whatever the database does


def give_back(shared: Shared, trays: Sequence[Tray]) -> None:
    """Give back what the trays hold, with its attempts, and finish what is done; what time runs out for stays there.

    What a slot or the keeper is about to end is left to them.
    """
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
    thread = threading.Thread(target=_tell, args=(shared, trays, done, unrun, severed), daemon=True)
    thread.start()
    thread.join(GIVE_BACK_SECONDS)


def _tell(
    shared: Shared, trays: Sequence[Tray], done: Sequence[Hold], unrun: Sequence[Hold], severed: Sequence[Severed]
) -> None:
    """Tell the database, on a connection of its own; what cannot be told is recovered after the TTL (S8)."""
    session = Session(shared.plan.target, "leaving")
    try:
        if unrun:
            session.run(release_jobs(**leases(unrun)))
            tell_released(unrun, "the runner ends", shared.tally)
            _ended(trays, unrun)
        if done:
            accepted = session.run(finish_jobs(**leases(done)))
            tell_finished(session, done, accepted, shared.tally)
            _ended(trays, done)
    except psycopg.Error as error:
        shared.outage.lost(error)
    for cut in severed:
        if cut is not None:
            cut.cancel(timeout_seconds=0.2)
    session.close()


def _ended(trays: Sequence[Tray], holds: Sequence[Hold]) -> None:
    for tray in trays:
        tray.ended(holds)
