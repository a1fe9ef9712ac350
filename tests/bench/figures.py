"""What is measured: a number with its unit, and where there is one the limit beside which it stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `of` is what `limit` reached in the same run, in the same unit."""

    scenario: str
    measure: str
    value: float
    unit: str
    of: float | None = None
    limit: str = ""

    @property
    def ratio(self) -> float | None:
        """The value as a part of the limit."""
        return self.value / self.of if self.of else None

    def json(self) -> str:
        """Return one line for machines."""
        fields: dict[str, str | float] = {
            "scenario": self.scenario,
            "measure": self.measure,
            "value": round(self.value, 4),
            "unit": self.unit,
        }
        if self.of is not None and self.ratio is not None:
            fields |= {"of": round(self.of, 4), "ratio": round(self.ratio, 4), "limit": self.limit}
        return json.dumps(fields, ensure_ascii=False)

    def text(self) -> str:
        """Return one row of the table."""
        row = f"{self.scenario:<13} {self.measure:<66} {number(self.value):>10} {self.unit:<9}"
        if self.of is None or self.ratio is None:
            return row.rstrip()
        return f"{row} {self.ratio:>7.2f} x {number(self.of)}, {self.limit}"


def number(value: float) -> str:
    """Return a number with about three digits that mean something."""
    digits = 0 if isinstance(value, int) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of some values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]
