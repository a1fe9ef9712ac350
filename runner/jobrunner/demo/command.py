"""The real `jobrunner` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from jobrunner.demo import show

RUN_SECONDS: Final = 240.0


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of the jobrunner that is installed beside this Python."""
    return [str(Path(sys.executable).with_name("jobrunner")), *arguments]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process, with these settings of a runner instead of those that are in it."""
    return {name: text for name, text in os.environ.items() if not name.startswith("JOBRUNNER_")} | dict(settings)


def drain(settings: Mapping[str, str], *runners: Sequence[str]) -> bool:
    """Run runners side by side until nothing is left to do; False when one ends with an error, or not in time.

    The first one shows its progress, the others their last line.
    """
    deadline = monotonic() + RUN_SECONDS
    processes: list[subprocess.Popen[str]] = []
    for arguments in runners:
        show.step("run", "jobrunner " + " ".join([*arguments, "--drain-all"]))
        processes.append(
            subprocess.Popen(
                command([*arguments, "--drain-all"]),
                env=environment(settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if processes else None,
                text=True,
            )
        )
    try:
        ends = [_ended(process, deadline) for process in processes]
    finally:
        for process in processes:
            process.terminate()  # nothing to one that has ended
            process.wait()
    return all(ends)


def _ended(process: subprocess.Popen[str], deadline: float) -> bool:
    """Wait for the end of a runner; says what is wrong."""
    try:
        said, _ = process.communicate(timeout=max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        show.step("FAILED", f"a runner has not come to its end in {RUN_SECONDS:.0f} s")
        return False
    if said:
        print(said.splitlines()[-1])
    if process.returncode != 0:
        show.step("FAILED", f"a runner ended with exit code {process.returncode}")
    return process.returncode == 0
