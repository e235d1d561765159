"""What a series' history says about the scatter of its launches."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Noise:
    """Scatter known before a comparison, on the log scale (0.01 is about 1 %).

    between_launches: standard deviation of the launch values of one commit.
    degrees: degrees of freedom behind that estimate (launches seen less commits seen).
    between_commits: what equal code varies beyond its launches (build layout, time of day); not averaged away by
        more launches of the same two commits.
    between_workers: standard deviation between workers that measure the same commit, None where never seen.
    widest_gap: the widest gap seen between two launches of equal code; with fewer launches than the policy asks
        for, a difference within it decides nothing. None: unknown, three standard deviations of a gap are taken.
    """

    between_launches: float
    degrees: float = 20.0
    between_commits: float = 0.0
    between_workers: float | None = None
    widest_gap: float | None = None

    def __post_init__(self) -> None:
        for name in ("between_launches", "between_commits"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"noise: {name} is a finite log-scale deviation >= 0, got {value!r}")
        if not self.degrees > 0.0:
            raise ValueError(f"noise: degrees must be positive, got {self.degrees!r}")
        if self.widest_gap is not None and not self.widest_gap >= 0.0:
            raise ValueError(f"noise: widest_gap cannot be negative, got {self.widest_gap!r}")

    @property
    def plausible_gap(self) -> float:
        """Gap between two single launches of equal code that must be expected, log scale."""
        if self.widest_gap is not None:
            return self.widest_gap
        return 3.0 * math.sqrt(2.0) * self.between_launches


def as_noise(noise: Noise | float | None) -> Noise | None:
    """A bare number is the relative deviation between launches."""
    return Noise(between_launches=float(noise)) if isinstance(noise, (int, float)) else noise
