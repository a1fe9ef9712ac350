"""What can go wrong: SQLSTATEs, exit codes, and the exceptions that a handler may raise."""

from __future__ import annotations

from typing import Final

# SQLSTATEs of the functions in schema mdm (docs/reference has what each of them means).
LEASE_LOST: Final = "MJ001"
NO_SUCH_JOB: Final = "MJ002"
UNKNOWN_KIND: Final = "MJ003"
WRONG_STATE: Final = "MJ004"
BAD_ARGUMENT: Final = "MJ005"
REFUSED: Final = "MJ006"
NOT_ALLOWED: Final = "MJ007"


class JobrunnerError(Exception):
    """An error for people: one line that names the remedy. `exit_code` is what the command ends with."""

    exit_code: int = 1


class UsageError(JobrunnerError):
    """The command line, the environment or an argument is wrong."""

    exit_code = 2


class SchemaError(JobrunnerError):
    """Schema mdm is missing, older or newer than this package, or could not be migrated."""

    exit_code = 3


class ConnectError(JobrunnerError):
    """The database cannot be reached, or refuses the login."""

    exit_code = 4


class UnfinishedError(JobrunnerError):
    """The runner was told to end before its jobs had ended: they were given back, or are left to recovery."""

    exit_code = 5


class InterruptedCommand(JobrunnerError):
    """Ctrl-C ended a subcommand: what it had asked of the database was cancelled."""

    exit_code = 130


class StuckError(JobrunnerError):
    """More handlers are stuck than the pool has slots: the process ends and its jobs are recovered."""

    exit_code = 70


class PermanentError(Exception):
    """Raised by a handler: trying again is of no use, the job goes to dlq at once (D10)."""


class RetryLater(Exception):
    """Raised by a handler: the run failed, try again after `seconds` (D8)."""

    def __init__(self, seconds: float, message: str) -> None:
        super().__init__(message)
        self.seconds = float(seconds)  # what is no number fails here, in the handler


class Snooze(Exception):
    """Raised by a handler: not now; no attempt is used up and the job is due again after `seconds` (D4)."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(reason)
        self.seconds = float(seconds)
        self.reason = reason


class Cancelled(Exception):
    """Raised inside a handler that was told to stop: its lease is lost, or the runner ends."""
