"""Launches as given by a caller, turned into one number each on the scale the search works in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfdb.stats.bisect_likelihood import Floats

Response = Literal["level", "rate", "pass_fail"]
Launch = float | Sequence[float]

DEFAULT_RATE_STEP = 0.25  # on the arcsine-root scale, where the alert does not say


def launch_value(launch: Launch, response: Response) -> float:
    """One number for a launch: a level is the median of its samples, a rate their mean, a pass or fail 1 if any failed.

    Positive infinity means a time-out and is allowed for ``level`` only.

    Raises:
        ValueError: no samples, not a number, a level that is not positive or a rate outside 0..1.
        TypeError: a boolean, which does not say whether true is good.
    """
    if isinstance(launch, (bool, np.bool_)):
        raise TypeError("a launch is a number (0 passed, 1 failed), not a boolean")
    samples = np.atleast_1d(np.asarray(launch, dtype=np.float64))
    if samples.ndim != 1 or samples.size == 0:
        raise ValueError("a launch needs a number or a flat list of samples")
    if np.isnan(samples).any():
        raise ValueError("a launch has a sample that is not a number")
    if response == "level":
        if (samples <= 0).any():
            raise ValueError("a level is positive; use response='rate' where 0 can occur")
        return float(np.median(samples))
    if response == "pass_fail":
        return float((samples != 0).any())
    if (samples < 0).any() or (samples > 1).any():
        raise ValueError("a rate lies between 0 and 1")
    return float(np.mean(samples))


def counts_only(values: Sequence[float], response: Response) -> bool:
    """Whether launches merely pass or fail."""
    return response == "pass_fail" or (response == "rate" and all(value in (0.0, 1.0) for value in values))


def to_scale(values: Floats, response: Response, sign: float) -> Floats:
    """Logarithm of a level, arcsine root of a rate, times ``sign`` so that the sought step goes up."""
    if response == "level":
        return sign * np.log(values)
    return sign * np.arcsin(np.sqrt(values))


def expected_step(alert_ratio: float, response: Response, good_rate: float) -> float:
    """Size of the alert's step on the working scale, positive.

    ``good_rate`` is the rate at the good end, which turns a ratio of rates into a difference.
    """
    if response == "level":
        return abs(math.log(alert_ratio))
    bad_rate = good_rate * alert_ratio if math.isfinite(alert_ratio) else math.nan
    if good_rate <= 0 or not 0 < bad_rate <= 1:
        return DEFAULT_RATE_STEP
    return max(abs(math.asin(math.sqrt(bad_rate)) - math.asin(math.sqrt(good_rate))), 0.01)


def without_infinity(values: Floats, step: float) -> Floats:
    """Time-outs, which were slower than anything seen, as the slowest finite launch or a step above the fastest."""
    finite = values[np.isfinite(values)]
    if finite.size == values.size:
        return values
    if finite.size == 0:
        return np.zeros_like(values)
    # sign may have turned +inf into -inf: either way it lies beyond every finite value on its side
    beyond = max(float(finite.max() - finite.min()), step)
    high, low = float(finite.min()) + beyond, float(finite.max()) - beyond
    return np.where(np.isposinf(values), high, np.where(np.isneginf(values), low, values))
