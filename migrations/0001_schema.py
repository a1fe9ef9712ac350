"""Schema mdm and its roles."""

from yoyo import step

from jobrunner.schema import apply_once

steps = [step(apply_once("schema"))]
