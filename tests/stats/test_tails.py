from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perfdb.stats import requests_needed, tail_bounds, tail_claim


@pytest.mark.parametrize(("violations", "needed"), [(0, 459), (1, 662), (5, 1307), (10, 2010)])
def test_requests_for_a_p99_claim_are_those_of_mlperf(violations: int, needed: int) -> None:
    assert requests_needed(0.99, violations=violations) == needed


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99, 0.999])
def test_one_request_fewer_would_not_show_the_claim(quantile: float) -> None:
    needed = requests_needed(quantile, confidence=0.95, violations=2)
    assert stats.binom.cdf(2, needed, 1 - quantile) <= 0.05 < stats.binom.cdf(2, needed - 1, 1 - quantile)


def test_the_value_is_the_nearest_rank() -> None:
    assert tail_bounds(range(1, 101), 0.99).value == 99
    assert tail_bounds(range(1, 1001), 0.9).value == 900
    assert tail_bounds([5.0], 0.99).value == 5.0


def test_bounds_cover_the_true_quantile() -> None:
    rng = np.random.default_rng(5)
    truth = stats.expon.ppf(0.99)
    hits = 0
    for _ in range(1000):
        bounds = tail_bounds(rng.exponential(1.0, 1200), 0.99)
        assert bounds.low is not None
        assert bounds.high is not None
        hits += bounds.low <= truth <= bounds.high
    assert hits >= 940


def test_too_few_requests_are_said() -> None:
    bounds = tail_bounds(range(100), 0.99)
    assert (bounds.enough, bounds.needed, bounds.high) == (False, 299, None)
    assert tail_bounds(range(299), 0.99).enough


def test_failures_rank_above_everything() -> None:
    values = list(range(1, 99))
    with_two = tail_bounds(values, 0.99, failures=2)
    assert (with_two.value, with_two.failed, with_two.requests) == (None, True, 100)
    with_one = tail_bounds([*values, 99], 0.99, failures=1)
    assert (with_one.value, with_one.failed) == (99.0, False)


def test_only_failures_leave_no_value() -> None:
    bounds = tail_bounds([], 0.5, failures=3)
    assert (bounds.value, bounds.failed, bounds.low) == (None, True, None)


def test_a_claim_is_shown_or_says_how_many_more_it_needs() -> None:
    fast = [10.0] * 459
    assert tail_claim(fast, 20.0, quantile=0.99).shown
    assert tail_claim(fast[:400], 20.0, quantile=0.99).more == 59
    slow = tail_claim([*fast, 30.0], 20.0, quantile=0.99)
    assert (slow.shown, slow.violations, slow.needed, slow.more) == (False, 1, 662, 202)


def test_a_failure_violates_every_limit() -> None:
    claim = tail_claim([10.0] * 460, 1e9, quantile=0.99, failures=1)
    assert (claim.violations, claim.shown) == (1, False)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="sample 2 is inf: count failed requests"):
        tail_bounds([1.0, math.inf], 0.99)
    with pytest.raises(ValueError, match="no requests"):
        tail_bounds([], 0.99)
    with pytest.raises(ValueError, match=r"p99 is 0\.99"):
        tail_bounds([1.0], 99)
    with pytest.raises(ValueError, match="failures cannot be negative"):
        tail_bounds([1.0], 0.99, failures=-1)
    with pytest.raises(ValueError, match="violations cannot be negative"):
        requests_needed(0.99, violations=-1)
