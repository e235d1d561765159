"""Exact null distributions of the two rank statistics, and the intervals that follow from them.

Mann-Whitney U (two sides) and Wilcoxon's signed rank W (pairs) are exact for every continuous noise: under
"same code" each arrangement of ranks is equally likely. Sources: Mann & Whitney 1947; Wilcoxon 1945; the intervals
by ordered differences are Hodges & Lehmann 1963 as in Hollander & Wolfe, *Nonparametric Statistical Methods*, 4.3
and 3.3. Ties count half and are then rounded towards "no difference", which keeps the level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

Floats = npt.NDArray[np.float64]

EXACT_LIMIT = 60
"""Up to this many launches a side the distribution is counted, above it is taken as normal."""


@dataclass(frozen=True, slots=True)
class RankLimits:
    """Positions (0-based) in the ordered differences that bound an interval, and the level they really have."""

    lower: int
    upper: int
    confidence: float


@lru_cache(maxsize=512)
def mann_whitney_cdf(n_base: int, n_head: int) -> Floats:
    """P(U <= u) for u = 0 .. n_base * n_head, without ties. Both counts >= 1.

    Counts by the recursion on the largest value: it is a head value (beats all base values) or a base value.
    """
    size = n_base * n_head + 1
    row = [_unit(size) for _ in range(n_head + 1)]
    for i in range(1, n_base + 1):
        fresh = [_unit(size)]
        for j in range(1, n_head + 1):
            counts = row[j] * (i / (i + j))
            counts[i:] += fresh[j - 1][: size - i] * (j / (i + j))
            fresh.append(counts)
        row = fresh
    cdf: Floats = np.minimum(np.cumsum(row[n_head]), 1.0)
    cdf.setflags(write=False)
    return cdf


@lru_cache(maxsize=256)
def signed_rank_cdf(pairs: int) -> Floats:
    """P(W <= w) for w = 0 .. pairs (pairs + 1) / 2, without ties or zeros."""
    chances = _unit(pairs * (pairs + 1) // 2 + 1)
    for rank in range(1, pairs + 1):
        chances = chances * 0.5 + np.concatenate([np.zeros(rank), chances[:-rank]]) * 0.5
    cdf: Floats = np.minimum(np.cumsum(chances), 1.0)
    cdf.setflags(write=False)
    return cdf


def mann_whitney_p(base: Floats, head: Floats) -> Floats:
    """Two-sided p of "same distribution" along the last axis; leading axes are separate comparisons."""
    n_base, n_head = base.shape[-1], head.shape[-1]
    above = np.sign(head[..., :, None] - base[..., None, :]).sum(axis=(-1, -2))
    u = (n_base * n_head - np.abs(above)) / 2.0
    if max(n_base, n_head) > EXACT_LIMIT:
        deviation = np.sqrt(n_base * n_head * (n_base + n_head + 1) / 12.0)
        return np.asarray(np.minimum(1.0, 2.0 * ndtr((u + 0.5 - n_base * n_head / 2.0) / deviation)))
    position = np.ceil(u).astype(np.intp)
    return np.asarray(np.minimum(1.0, 2.0 * mann_whitney_cdf(n_base, n_head)[position]))


def signed_rank_p(differences: Floats) -> float:
    """Two-sided p of "symmetric about zero" for the differences of pairs. Zeros count half to each side."""
    pairs = len(differences)
    sizes = np.abs(differences)
    ranks = (
        np.searchsorted(np.sort(sizes), sizes, "left") + np.searchsorted(np.sort(sizes), sizes, "right") + 1
    ) / 2
    total = pairs * (pairs + 1) / 2.0
    positive = float(np.sum(ranks[differences > 0]) + np.sum(ranks[differences == 0]) / 2.0)
    w = min(positive, total - positive)
    if pairs > 2 * EXACT_LIMIT:
        deviation = np.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24.0)
        return float(min(1.0, 2.0 * ndtr((w + 0.5 - total / 2.0) / deviation)))
    return float(min(1.0, 2.0 * signed_rank_cdf(pairs)[int(np.ceil(w))]))


@lru_cache(maxsize=512)
def mann_whitney_limits(n_base: int, n_head: int, confidence: float) -> RankLimits | None:
    """Limits into the sorted n_base * n_head differences, None where too few launches reach the confidence."""
    if max(n_base, n_head) > EXACT_LIMIT:
        deviation = np.sqrt(n_base * n_head * (n_base + n_head + 1) / 12.0)
        lower = int(np.floor(n_base * n_head / 2.0 - ndtri(0.5 + confidence / 2.0) * deviation)) - 1
        return RankLimits(lower, n_base * n_head - 1 - lower, confidence)
    return _limits(mann_whitney_cdf(n_base, n_head), confidence)


@lru_cache(maxsize=256)
def signed_rank_limits(pairs: int, confidence: float) -> RankLimits | None:
    """Limits into the sorted pairs (pairs + 1) / 2 Walsh averages, None where too few pairs reach the confidence."""
    if pairs > 2 * EXACT_LIMIT:
        total = pairs * (pairs + 1) / 2.0
        deviation = np.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24.0)
        lower = int(np.floor(total / 2.0 - ndtri(0.5 + confidence / 2.0) * deviation)) - 1
        return RankLimits(lower, int(total) - 1 - lower, confidence)
    return _limits(signed_rank_cdf(pairs), confidence)


def _limits(cdf: Floats, confidence: float) -> RankLimits | None:
    """The largest k with P(statistic < k) <= (1 - confidence) / 2 gives the interval [D(k), D(N + 1 - k)]."""
    lower = int(np.searchsorted(cdf, (1.0 - confidence) / 2.0, side="right")) - 1
    if lower < 0:
        return None
    return RankLimits(lower, len(cdf) - 2 - lower, float(1.0 - 2.0 * cdf[lower]))


def _unit(size: int) -> Floats:
    chances = np.zeros(size)
    chances[0] = 1.0
    return chances
