"""The eight kinds and the principal `unknown`."""

from yoyo import step

from jobrunner.schema import apply_once

__depends__ = {"0005_indexes"}
steps = [step(apply_once("seed"))]
