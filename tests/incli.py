"""Runs a subcommand in this process: what the real command does from its arguments on, without its start-up time."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from jobrunner import cli
from jobrunner.logs import logger


def run(dsn: str, *arguments: str) -> tuple[int, str, str]:
    """Run a subcommand to its end: exit code, stdout, stderr. It finds no terminal."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "stdin", io.StringIO()),
        patch.dict("os.environ", {"JOBRUNNER_DSN": dsn}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        before = (logger.handlers, logger.level, logger.propagate)
        code = cli.execute(list(arguments))
        logger.handlers, logger.propagate = before[0], before[2]
        logger.setLevel(before[1])
    return code, out.getvalue(), err.getvalue()
