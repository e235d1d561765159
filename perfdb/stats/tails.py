"""Tail percentiles with exact bounds, and how many requests a tail claim needs.

Order statistics: with n independent values the number below the true q-quantile is Binomial(n, q), whatever the
distribution (David & Nagaraja, *Order Statistics*, 7.1). Early stopping, as MLPerf loadgen does it: "the p99 is
under the limit" is shown once P(at most v of n over the limit | the true share over it is 1 %) <= 1 - confidence.

A failed request never finished: it ranks as +infinity. It enters as an explicit count, and an infinite percentile
is reported as None beside `failed = True`.

Assumption: requests are independent. Requests of one launch share its queue, so bounds over one launch are too
narrow where load is bursty; `compare` therefore decides between launches and uses these bounds only to refuse a claim
that the samples cannot carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from perfdb.stats.ranks import Floats


@dataclass(frozen=True, slots=True)
class TailBounds:
    """A percentile of one set of requests.

    value: the order statistic ceil(q n), None if it is a failed request. low, high: bounds at `confidence`;
    None where there are too few requests (low, or high) or the bound is a failed request (high).
    needed: requests that a claim about this quantile needs at least. enough: whether there are that many.
    """

    quantile: float
    value: float | None
    low: float | None
    high: float | None
    requests: int
    failures: int
    failed: bool
    confidence: float
    needed: int
    enough: bool


@dataclass(frozen=True, slots=True)
class TailClaim:
    """Whether "the quantile lies within the limit" is shown. more: requests still needed if none of them violates."""

    shown: bool
    violations: int
    requests: int
    needed: int
    more: int


def requests_needed(quantile: float, *, confidence: float = 0.99, violations: int = 0) -> int:
    """Fewest requests that show a tail claim with this many violations (MLPerf: 459, 662, 1307, 2010 for 0, 1, 5, 10
    at p99 and 99 %). Raises ValueError for a quantile or a confidence outside (0, 1)."""
    _check_fraction("quantile", quantile)
    _check_fraction("confidence", confidence)
    if violations < 0:
        raise ValueError(f"violations cannot be negative, got {violations}")
    enough = violations + 1
    while not _shows(enough, violations, quantile, confidence):
        enough *= 2
    few = enough // 2
    while enough - few > 1:
        middle = (few + enough) // 2
        if middle > violations and _shows(middle, violations, quantile, confidence):
            enough = middle
        else:
            few = middle
    return enough


def tail_bounds(
    samples: Sequence[float] | Floats, quantile: float, *, failures: int = 0, confidence: float = 0.95
) -> TailBounds:
    """Percentile of finished requests (`samples`, finite) and `failures` unfinished ones, with exact bounds.

    Raises ValueError for no requests at all, a negative count, or a sample that is not finite (with its position).
    """
    _check_fraction("quantile", quantile)
    _check_fraction("confidence", confidence)
    if failures < 0:
        raise ValueError(f"failures cannot be negative, got {failures}")
    values = np.asarray(samples, dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"sample {wrong[0] + 1} is {values[wrong[0]]}: count failed requests in `failures`")
    total = len(values) + failures
    if total == 0:
        raise ValueError("no requests: there is no percentile of nothing")
    ordered = np.sort(values)
    rank = order_rank(total, quantile)
    miss = (1.0 - confidence) / 2.0
    below = bdtr(np.arange(total + 1), total, quantile)
    lower = int(np.searchsorted(below, miss, side="right"))  # largest l with P(B <= l - 1) <= miss
    upper = (
        int(np.searchsorted(below, 1.0 - miss, side="left")) + 1
    )  # smallest u with P(B <= u - 1) >= 1 - miss
    needed = requests_needed(quantile, confidence=confidence)
    return TailBounds(
        quantile=quantile,
        value=_ranked(ordered, rank),
        low=_ranked(ordered, lower) if lower >= 1 else None,
        high=_ranked(ordered, upper) if upper <= total else None,
        requests=total,
        failures=failures,
        failed=rank > len(ordered),
        confidence=confidence,
        needed=needed,
        enough=total >= needed,
    )


def tail_claim(
    samples: Sequence[float] | Floats,
    limit: float,
    *,
    quantile: float,
    failures: int = 0,
    confidence: float = 0.99,
) -> TailClaim:
    """Early stopping: is "the quantile is at most `limit`" shown? A failure violates every limit."""
    bounds = tail_bounds(samples, quantile, failures=failures, confidence=confidence)
    violations = int(np.sum(np.asarray(samples, dtype=np.float64) > limit)) + failures
    needed = requests_needed(quantile, confidence=confidence, violations=violations)
    more = max(0, needed - bounds.requests)
    return TailClaim(more == 0, violations, bounds.requests, needed, more)


def order_rank(total: int, quantile: float) -> int:
    """1-based rank of the nearest-rank percentile, ceil(q n), guarded against 0.99 * 100 = 99.00000000000001."""
    return max(1, int(np.ceil(quantile * total - 1e-9)))


def _ranked(ordered: Floats, rank: int) -> float | None:
    return float(ordered[rank - 1]) if rank <= len(ordered) else None


def _shows(requests: int, violations: int, quantile: float, confidence: float) -> bool:
    return bool(bdtr(violations, requests, 1.0 - quantile) <= 1.0 - confidence)


def _check_fraction(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} lies between 0 and 1, got {value!r} (p99 is 0.99)")
