"""Tail metrics and failures inside `compare`."""

from __future__ import annotations

import numpy as np

from perfdb.stats import Metric, Outcome, Statistic, compare

P99 = Metric(name="TTFT", unit="ms", statistic=Statistic.P99)
MEDIAN = Metric(name="TTFT", unit="ms")


def requests(level: float, *, seed: int, launches: int = 6, count: int = 300) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [list(level * rng.gamma(8.0, 0.125, count)) for _ in range(launches)]


def test_a_slower_tail_is_regressed_and_both_bounds_are_given() -> None:
    verdict = compare(requests(100, seed=1), requests(200, seed=2), metric=P99)
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.base_tail is not None
    assert verdict.base_tail.low is not None
    assert verdict.base_tail.value is not None
    assert verdict.base_tail.high is not None
    assert verdict.base_tail.low < verdict.base_tail.value < verdict.base_tail.high


def test_too_few_samples_for_a_p99_claim_are_said_and_decide_nothing() -> None:
    verdict = compare(requests(100, seed=1, count=20), requests(200, seed=2, count=20), metric=P99)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "120 samples of base are too few for a p99 claim: 299 are needed" in verdict.reasons[-1]
    assert verdict.launches_needed == 15
    assert verdict.ratio is not None
    assert verdict.ratio > 1.5


def test_more_failures_never_look_faster() -> None:
    base, head = requests(100, seed=1), requests(50, seed=2)
    assert compare(base, head, metric=P99).outcome is Outcome.IMPROVED
    failing = compare(base, head, metric=P99, head_failures=[10] * 6)
    assert failing.outcome is Outcome.REGRESSED
    assert failing.ratio is None
    assert failing.head_value is None
    assert failing.head_tail is not None
    assert failing.head_tail.failed
    assert failing.head_tail.value is None


def test_failures_short_of_the_percentile_shift_its_rank() -> None:
    base = [list(map(float, range(1, 201)))] * 6
    clean = compare(base, base, metric=P99)
    shifted = compare(base, base, metric=P99, head_failures=[1] * 6)
    assert clean.head_value == 198.0
    assert shifted.head_value == 199.0


def test_failures_rank_inside_a_median_too() -> None:
    base = [[1.0, 2.0, 3.0]] * 5
    assert compare(base, base, metric=MEDIAN, head_failures=[2] * 5).head_value == 3.0
    assert compare(base, base, metric=MEDIAN, head_failures=[9] * 5).outcome is Outcome.REGRESSED


def test_launches_that_failed_altogether_are_counted() -> None:
    verdict = compare([[1.0]] * 3, [[], [], []], metric=MEDIAN, head_failures=[5, 5, 5])
    assert verdict.outcome is Outcome.REGRESSED
    assert "3 head launches" in verdict.reasons[0] or "3 of 3 head launches" in verdict.reasons[0]


def test_one_failed_launch_of_three_decides_nothing() -> None:
    verdict = compare([[1.0]] * 3, [[1.0]] * 3, metric=MEDIAN, head_failures=[9, 0, 0])
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.launches_needed == 4


def test_fewer_failures_are_an_improvement() -> None:
    verdict = compare([[1.0]] * 3, [[1.0]] * 3, metric=MEDIAN, base_failures=[9, 9, 9])
    assert verdict.outcome is Outcome.IMPROVED


def test_few_requests_show_a_tail_of_failures() -> None:
    base, head = requests(100, seed=1, count=20), requests(100, seed=2, count=20)
    assert compare(base, head, metric=P99, head_failures=[10] * 6).outcome is Outcome.REGRESSED
    assert compare(base, head, metric=P99, head_failures=[1, 0, 0, 0, 0, 0]).outcome is Outcome.INCONCLUSIVE


def test_one_percentile_a_launch_is_compared_like_any_launch_value() -> None:
    rng = np.random.default_rng(8)
    base, head = 100 * np.exp(rng.normal(0, 0.01, 6)), 130 * np.exp(rng.normal(0, 0.01, 6))
    assert compare(base, head, metric=P99).outcome is Outcome.REGRESSED
    many = compare(base, head, metric=P99, base_requests=[100] * 6, head_requests=[100] * 6)
    assert many.outcome is Outcome.REGRESSED
    few = compare(base, head, metric=P99, base_requests=[100] * 6, head_requests=[10] * 6)
    assert few.outcome is Outcome.INCONCLUSIVE
    assert "60 requests of head are too few for a p99 claim: 299 are needed" in few.reasons[-1]
    assert few.launches_needed == 30
