"""The types; the values that the platform's enum lacks need a transaction of their own."""

from yoyo import step

from jobrunner.schema import apply_once

__depends__ = {"0001_schema"}
steps = [step(apply_once("types"))]
