"""The indexes of the job system."""

from yoyo import step

from jobrunner.schema import apply_once

__depends__ = {"0004_tables"}
steps = [step(apply_once("indexes"))]
