"""How large a kept jump is, how sure, and where it may lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from perfdb.stats.detect.history import Floats

LEVEL_COMMITS = 100  # a level is read from at most this many commits beside the jump
_RANGE_NATS = 2.0  # places within this of the best are allowed by the data


@dataclass(frozen=True)
class Level:
    value: float
    error: float


def level_of(centre: Floats, scale: Floats, sigma: float, *, phi: float = 0.0) -> Level:
    """Student t4 location of commits with known scale, and its standard error.

    error^2 = sigma^2 (1 + phi) / (1 - phi) / sum of 1 / scale^2 times 7/5, the inverse Fisher information of t4
    ((nu + 1) / (nu + 3) = 5/7 per unit scale). sigma is the noise of the whole series, so two commits suffice.
    """
    value = _location(centre, scale * sigma)
    information = float(np.sum(1.0 / scale**2))
    error = sigma * np.sqrt(1.4 / information * (1.0 + phi) / (1.0 - phi))
    return Level(value=value, error=float(error))


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _location(x: Floats, sigma: Floats) -> float:
    place = float(np.median(x))
    for _ in range(8):
        total = 0.0
        mass = 0.0
        for t in range(len(x)):
            u = (x[t] - place) / sigma[t]
            share = 1.0 / (4.0 + u * u) / sigma[t] ** 2
            total += share * x[t]
            mass += share
        place = total / mass
    return place


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def place_costs(x: Floats, sigma: Floats, before: float, after: float, cap: float) -> Floats:
    """Cost of the step beginning at each of 0..n (n: not inside), given the two levels; shape (n + 1,), nats."""
    n = len(x)
    costs = np.zeros(n + 1)
    for t in range(n):
        u = ((x[t] - after) / sigma[t]) ** 2
        costs[0] += min(cap, 2.5 * np.log1p(u / 4.0))
    for t in range(n):
        u = ((x[t] - after) / sigma[t]) ** 2
        v = ((x[t] - before) / sigma[t]) ** 2
        costs[t + 1] = costs[t] - min(cap, 2.5 * np.log1p(u / 4.0)) + min(cap, 2.5 * np.log1p(v / 4.0))
    return costs


def allowed_range(costs: Floats, at: int) -> tuple[int, int]:
    """First and last place around `at` that the costs allow without a gap."""
    good = costs <= costs.min() + _RANGE_NATS
    good[at] = True
    first = last = at
    while first > 1 and good[first - 1]:
        first -= 1
    while last < len(costs) - 2 and good[last + 1]:
        last += 1
    return first, last
