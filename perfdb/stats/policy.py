"""What is measured (`Metric`) and what counts as a change of it (`Policy`).

Both are plain values: the database, the manifest and a shell build the same two objects, so that the page, the
gate and the mail decide by the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self


class Statistic(StrEnum):
    """How the samples of one launch become the launch's value."""

    MEDIAN = "median"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    P999 = "p999"
    RATE = "rate"
    COUNT = "count"

    @property
    def quantile(self) -> float | None:
        """The probability of a tail statistic (0.99 for p99), None for every other statistic."""
        return {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p999": 0.999}.get(self.value)


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity.

    `unit` is a unit string that `perfdb.stats.units` knows, or any other text (then never converted).
    `lower_is_better` is None where the direction is unknown: such a metric can change but not regress.
    `deterministic` declares that repeats are equal by construction (instruction counts, bytes, registers);
    it is never inferred from equal samples.
    """

    name: str = "time"
    unit: str = "s"
    lower_is_better: bool | None = True
    statistic: Statistic = Statistic.MEDIAN
    deterministic: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The thresholds of a metric. A verdict needs all three rules: relative, absolute and noise.

    relative_floor: smallest |ratio - 1| that can be a change.
    equivalence_margin: |ratio - 1| inside which both sides count as the same, once shown.
    absolute_floor: smallest difference in the metric's unit; None means the timer's resolution for times, 0 else.
    alpha: two-sided level of the noise rule; 0.005 keeps the measured false verdicts under 1 % with room to spare.
    confidence: of every interval shown. power: for `minimum_detectable` and `launches_needed`.
    min_launches: fewer launches a side cannot decide unless the series' noise is known.
    few_launches_floor: smallest |ratio - 1| that fewer than five launches a side may call a change while the noise is
        unknown: three launches fall into separate modes by chance alone in up to 3 % of comparisons.
    blocking: whether a regression stops the gate or is only reported.
    """

    relative_floor: float = 0.005
    equivalence_margin: float = 0.01
    absolute_floor: float | None = None
    alpha: float = 0.005
    confidence: float = 0.95
    power: float = 0.8
    min_launches: int = 3
    max_launches: int = 40
    few_launches_floor: float = 0.08
    blocking: bool = True

    def __post_init__(self) -> None:
        for name in ("relative_floor", "equivalence_margin", "few_launches_floor"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise ValueError(f"policy: {name} is a fraction in [0, 1), got {value!r} (5 % is 0.05)")
        for name in ("alpha", "confidence", "power"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise ValueError(f"policy: {name} lies between 0 and 1, got {value!r}")
        if self.absolute_floor is not None and not self.absolute_floor >= 0.0:
            raise ValueError(f"policy: absolute_floor cannot be negative, got {self.absolute_floor!r}")
        if not 1 <= self.min_launches <= self.max_launches:
            raise ValueError(
                f"policy: 1 <= min_launches <= max_launches, got {self.min_launches} and {self.max_launches}"
            )

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> Self:
        """Build from JSON or TOML. Raises ValueError naming an unknown key or a wrong type."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"policy: unknown key {unknown[0]!r} (known: {', '.join(sorted(known))})")
        for key, value in values.items():
            wanted = bool if key == "blocking" else int if key.endswith("launches") else float
            ok = isinstance(value, bool) if wanted is bool else not isinstance(value, bool)
            ok = ok and isinstance(value, (int, float) if wanted is float else wanted)
            if not ok and not (value is None and key == "absolute_floor"):
                raise ValueError(f"policy: {key} must be {wanted.__name__}, got {value!r}")
        return cls(**values)
