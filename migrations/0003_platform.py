"""Stand-ins for the platform's tables where they are missing (D20)."""

from yoyo import step

from jobrunner.schema import apply_once

__depends__ = {"0002_types"}
steps = [step(apply_once("platform"))]
