"""When enough samples have been taken: a criterion is an object, so that a tier can bring its own."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# A normal sample's median has standard error 1.2533 sigma / sqrt(n), and sigma is 1.4826 MAD.
_MEDIAN_ERROR_OF_MAD = 1.2533 * 1.4826


class Stopping(Protocol):
    """Decides after each sample. `elapsed_s` counts from the first timed sample."""

    def done(self, samples: Sequence[float], elapsed_s: float) -> bool: ...


def relative_median_error(samples: Sequence[float]) -> float:
    """Standard error of the median over the median, from the median absolute deviation; inf below 2.

    Holds inside a launch only: the error between launches is another, larger one.
    """
    if len(samples) < 2:
        return math.inf
    median = statistics.median(samples)
    if median == 0:
        return math.inf
    mad = statistics.median(abs(sample - median) for sample in samples)
    return _MEDIAN_ERROR_OF_MAD * mad / math.sqrt(len(samples)) / abs(median)


@dataclass(frozen=True)
class MedianPrecision:
    """Stop at `min_samples` or `min_time_s`, once the median's relative error is at most `relative_error`.

    `budget_s` and `max_samples` end it whatever the error is.
    """

    relative_error: float = 0.002
    min_samples: int = 50
    min_time_s: float = 0.5
    budget_s: float = 2.0
    max_samples: int = 2000

    def done(self, samples: Sequence[float], elapsed_s: float) -> bool:
        if not samples:
            return False
        if elapsed_s >= self.budget_s or len(samples) >= self.max_samples:
            return True
        if len(samples) < self.min_samples and elapsed_s < self.min_time_s:
            return False
        # The error needs a sort; looking at every tenth sample costs no precision.
        if len(samples) >= self.min_samples and len(samples) % 10:
            return False
        return relative_median_error(samples) <= self.relative_error


@dataclass(frozen=True)
class FixedCount:
    """Exactly `samples`, or as many as fit into `budget_s`."""

    samples: int
    budget_s: float = math.inf

    def done(self, samples: Sequence[float], elapsed_s: float) -> bool:
        return len(samples) >= self.samples or (bool(samples) and elapsed_s >= self.budget_s)
