"""The tables of the job system."""

from yoyo import step

from jobrunner.schema import apply_once

__depends__ = {"0003_platform"}
steps = [step(apply_once("tables"))]
