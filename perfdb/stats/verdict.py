"""What a comparison answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from perfdb.stats.tails import TailBounds


class Outcome(StrEnum):
    REGRESSED = "regressed"
    IMPROVED = "improved"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    CHANGED = "changed"

    @property
    def is_change(self) -> bool:
        return self in (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.CHANGED)


@dataclass(frozen=True, slots=True)
class Rules:
    """Which of the three rules a difference meets; a change needs all of them."""

    relative: bool
    absolute: bool
    noise: bool

    @property
    def all_met(self) -> bool:
        return self.relative and self.absolute and self.noise


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one comparison. Numbers that are unknown are None, never NaN or infinite.

    outcome: see `Outcome`; `changed` only where the metric's direction is unknown.
    ratio: head over base (1.03 is 3 % more), None where base is zero. low, high: its interval at `confidence`,
        None where the launches give none.
    p_value: two-sided, of "no difference", None where nothing estimates the noise.
    minimum_detectable: smallest |ratio - 1| that these launches find with the policy's power.
    launches_needed: launches a side until a decision, if the present estimate is the true effect;
        None where the outcome is already decided or more launches cannot help.
    reasons: plain sentences; those of the three rules start with "relative:", "absolute:" and "noise:".
    base_value, head_value: median of the launch values, `difference` the absolute effect, all in `unit`.
    method: what decided: "t", "rank", "history", "exact", "pairs" or "none".
    cycles: the same comparison in SM cycles, where the clock of each launch was given.
    clock_effect: the gap is in time alone; the clock moved, not the code.
    base_tail, head_tail: bounds of the tail statistic on each side, for tail metrics.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    n_base: int
    n_head: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    minimum_detectable: float | None = None
    launches_needed: int | None = None
    base_value: float | None = None
    head_value: float | None = None
    difference: float | None = None
    unit: str = ""
    confidence: float = 0.95
    method: str = "none"
    rules: Rules | None = None
    clock_effect: bool = False
    cycles: Verdict | None = None
    base_tail: TailBounds | None = None
    head_tail: TailBounds | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values, for the wire and the database."""
        values = asdict(self)
        values["outcome"] = self.outcome.value
        values["reasons"] = list(self.reasons)
        values["cycles"] = self.cycles.to_mapping() if self.cycles else None
        return values
