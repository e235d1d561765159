"""How many launches a decision costs, and how small an effect the present ones can find.

Source: the usual normal-theory sample size with t quantiles, n >= ((t(1 - alpha/2) + t(power)) s / d)^2, where the
quantiles depend on n (Guenther 1981): the smallest n that satisfies it. s is the root of both sides' launch
variances added. From five launches a side the t method holds half of alpha (see `perfdb.stats.effect`), and is
planned for that.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtri, stdtrit

from perfdb.stats.effect import RANK_LAUNCHES
from perfdb.stats.policy import Policy
from perfdb.stats.ranks import Floats

MOST_LAUNCHES = 10_000
_TABLE = 64
"""Up to here the t quantiles are tabled, beyond they equal the normal ones."""


def detectable(error: float, degrees: float, policy: Policy, *, launches: int) -> float:
    """Smallest true difference found with the policy's power at this standard error of `launches` a side."""
    level = policy.alpha / 2.0 if launches >= RANK_LAUNCHES else policy.alpha
    return float((stdtrit(degrees, 1.0 - level / 2.0) + stdtrit(degrees, policy.power)) * error)


def launches_to_detect(
    difference: float, spread: float, policy: Policy, *, fixed: float = 0.0, known: float = 0.0
) -> int:
    """Launches a side to find `difference`, at most MOST_LAUNCHES.

    fixed: standard error that launches do not average away. known: degrees of freedom of a noise from history.
    """
    return _launches(abs(difference), spread, policy.alpha, policy, fixed, known)


def launches_to_decide(
    difference: float,
    spread: float,
    policy: Policy,
    *,
    floor: float,
    margin: float,
    fixed: float = 0.0,
    known: float = 0.0,
) -> int:
    """Launches a side until a change of this size is found or equivalence within the margin is shown.

    floor, margin: on the same scale as `difference`.
    """
    size = abs(difference)
    needed = MOST_LAUNCHES
    if size < margin:
        needed = _launches(margin - size, spread, 1.0 - policy.confidence, policy, fixed, known)
    if size >= floor and size > 0.0:
        needed = min(needed, _launches(size, spread, policy.alpha, policy, fixed, known))
    return needed


def _launches(target: float, spread: float, level: float, policy: Policy, fixed: float, known: float) -> int:
    fewest = 1 if known else policy.min_launches
    quantiles = _quantiles(level, policy.power, known)
    counts = np.arange(1, _TABLE + 1)
    enough = quantiles**2 * (spread**2 / counts + fixed**2) <= target**2
    enough[: fewest - 1] = False
    if enough.any():
        return int(counts[enough.argmax()])
    averaged = (target / float(ndtri(1.0 - level / 4.0) + ndtri(policy.power))) ** 2 - fixed**2
    if averaged <= spread**2 / MOST_LAUNCHES:
        return MOST_LAUNCHES
    return max(_TABLE + 1, math.ceil(spread**2 / averaged))


@lru_cache(maxsize=256)
def _quantiles(level: float, power: float, known: float) -> Floats:
    launches = np.arange(1, _TABLE + 1)
    degrees = np.maximum(2.0 * launches - 2.0 + known, 0.5)
    levels = np.where(launches >= RANK_LAUNCHES, level / 2.0, level)
    values: Floats = stdtrit(degrees, 1.0 - levels / 2.0) + stdtrit(degrees, power)
    values.setflags(write=False)
    return values
