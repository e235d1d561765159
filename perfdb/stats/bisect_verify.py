"""The last question before a name: do the launches of a commit and of its parent, taken side by side, differ?

The posterior trusts its noise model; this test does not. It wants (1) a rank test on all launches of the two commits,
and (2) launches of their own, taken in the order A B B A after the name first came up, that favour a step of the
estimated size. A name that a few odd launches or a drift produced does not survive fresh launches of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

RANK_LEVEL = 0.05
FRESH_LOG_ODDS = math.log(4.0)
FRESH_MINIMUM = 1


@dataclass(frozen=True)
class Pair:
    """Two neighbours, ``before`` and ``after`` the step, and how many launches each had when the name came up."""

    before: int
    after: int
    before_launches: int
    after_launches: int


@dataclass(frozen=True)
class Request:
    """One more probe of the pair."""

    commit: int
    launches: int


def separated(before: list[float], after: list[float]) -> bool:
    """One-sided rank test: ``after`` is larger at the 5 % level."""
    return rank_p(before, after) <= RANK_LEVEL + 1e-9


def rank_p(before: list[float], after: list[float]) -> float:
    """One-sided Mann-Whitney p that ``after`` is larger: exact without ties up to 12 a side, else normal."""
    n, m = len(before), len(after)
    if n == 0 or m == 0:
        return 1.0
    low, high = np.asarray(before)[:, None], np.asarray(after)[None, :]
    u = float((high > low).sum() + 0.5 * (high == low).sum())
    pooled = np.concatenate([low[:, 0], high[0]])
    _, ties = np.unique(pooled, return_counts=True)
    if n <= 12 and m <= 12 and (ties.max() == 1 or u == n * m):
        counts = _u_counts(n, m)
        return float(sum(counts[math.ceil(u) :]) / math.comb(n + m, n))
    total = n + m
    tie_term = float((ties**3 - ties).sum()) / (total * (total - 1))
    variance = n * m / 12.0 * (total + 1 - tie_term)
    if variance <= 0:
        return 1.0
    return 0.5 * math.erfc((u - n * m / 2.0 - 0.5) / math.sqrt(2.0 * variance))


@cache
def _u_counts(n: int, m: int) -> tuple[int, ...]:
    """Number of orderings of n and m values with each U statistic 0..nm (Mann and Whitney 1947)."""
    if n == 0 or m == 0:
        return (1,)
    with_last, without = _u_counts(n - 1, m), _u_counts(n, m - 1)
    counts = [0] * (n * m + 1)
    for u, count in enumerate(with_last):
        counts[u + m] += count
    for u, count in enumerate(without):
        counts[u] += count
    return tuple(counts)


def fresh_log_odds(before: list[float], after: list[float], step: float, noise_sd: float) -> float:
    """Log likelihood ratio of a step of ``step`` against none, base level free, from fresh launches of both sides.

    With D the difference of medians and h = n m / (n + m): h (D step - step^2 / 2) / sd^2, where the noise is the
    larger of the search's estimate and the spread of these launches.
    """
    n, m = len(before), len(after)
    if n == 0 or m == 0:
        return 0.0
    difference = float(np.median(after) - np.median(before))
    spread = 0.0
    if n + m >= 4:
        squares = float(np.var(before) * n + np.var(after) * m)
        spread = math.sqrt(squares / (n + m - 2))
    sd = max(noise_sd, spread, 1e-12)
    return n * m / (n + m) * (difference * step - 0.5 * step**2) / sd**2


def verified(pair: Pair, launches: Mapping[int, list[float]], step: float, noise_sd: float) -> bool:
    """Whether both tests pass."""
    before, after = launches.get(pair.before, []), launches.get(pair.after, [])
    fresh_before, fresh_after = before[pair.before_launches :], after[pair.after_launches :]
    if min(len(fresh_before), len(fresh_after)) < FRESH_MINIMUM:
        return False
    if not separated(before, after):
        return False
    return fresh_log_odds(fresh_before, fresh_after, step, noise_sd) >= FRESH_LOG_ODDS


def requests(pair: Pair, launches: Mapping[int, list[float]], k: int) -> list[Request]:
    """The next launches of the pair: A B B A for one worker, both sides at once for more."""
    before = len(launches.get(pair.before, [])) - pair.before_launches
    after = len(launches.get(pair.after, [])) - pair.after_launches
    if k > 1:
        return [
            Request(pair.before, 2 + max(after - before, 0)),
            Request(pair.after, 2 + max(before - after, 0)),
        ]
    if before == after:
        return [Request(pair.before, 1)]
    if before < after:
        return [Request(pair.before, after - before)]
    return [Request(pair.after, before - after + 1)]
