"""Medians without the overhead of the general routine: a series asks for dozens of them."""

from __future__ import annotations

import numpy as np
from numba import njit

from perfdb.stats.detect.history import Floats

MAD_TO_SIGMA = 1.4826  # of a normal distribution


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def median(x: Floats) -> float:
    return float(np.median(x))


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def sigma_about_zero(x: Floats) -> float:
    """1.4826 times the median of |x|: a standard deviation that outliers do not move."""
    return float(1.4826 * np.median(np.abs(x)))
