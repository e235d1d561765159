"""The arithmetic under a verdict, against scipy where scipy has it and by simulation where it has not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from perfdb.stats import Noise, Policy
from perfdb.stats.effect import measure, measure_with_noise
from perfdb.stats.planning import MOST_LAUNCHES, detectable, launches_to_decide, launches_to_detect
from perfdb.stats.ranks import (
    mann_whitney_cdf,
    mann_whitney_limits,
    mann_whitney_p,
    signed_rank_cdf,
    signed_rank_limits,
    signed_rank_p,
)

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(("n_base", "n_head"), [(3, 3), (4, 5), (4, 4)])
def test_few_launches_are_welch_t_alone(n_base: int, n_head: int) -> None:
    base, head = RNG.normal(0, 1, n_base), RNG.normal(1, 2, n_head)
    found, known = measure(base, head, confidence=0.95), stats.ttest_ind(head, base, equal_var=False)
    assert found.p_value == pytest.approx(known.pvalue)
    interval = known.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_from_five_launches_the_smaller_of_two_p_values_counts_twice() -> None:
    base, head = RNG.normal(0, 1, 8), RNG.normal(1, 1, 8)
    t = stats.ttest_ind(head, base, equal_var=False).pvalue
    rank = stats.mannwhitneyu(head, base, method="exact").pvalue
    assert measure(base, head, confidence=0.95).p_value == pytest.approx(2 * min(t, rank))


def test_one_throttled_launch_does_not_hide_a_step() -> None:
    base = np.array([0.0, 0.001, 0.002, -0.001, 0.0015, -0.002, 0.0005, 0.25])
    head = np.array([0.03, 0.031, 0.029, 0.032, 0.0305, 0.0285, 0.0295, 0.0315])
    found = measure(base, head, confidence=0.95)
    assert found.by_rank
    assert found.p_value > 0.005  # seven of eight: not enough at this level
    found = measure(np.tile(base, 2) + RNG.normal(0, 1e-6, 16), np.tile(head, 2), confidence=0.95)
    assert found.p_value < 0.005
    assert 0.02 < found.low < found.high < 0.04


def test_sides_of_very_different_number_use_the_degrees_of_the_smaller() -> None:
    found = measure(RNG.normal(0, 1, 20), RNG.normal(0, 1, 3), confidence=0.95)
    assert found.degrees == 2.0
    assert not found.by_rank


def test_leading_axes_are_separate_comparisons() -> None:
    base, head = RNG.normal(0, 1, (4, 6)), RNG.normal(1, 1, (4, 6))
    together = measure(base, head, confidence=0.95)
    for k in range(4):
        alone = measure(base[k], head[k], confidence=0.95)
        assert together.p_value[k] == alone.p_value
        assert together.low[k] == alone.low


def test_known_noise_decides_alone_at_one_launch() -> None:
    found = measure_with_noise(
        np.array([0.0]), np.array([0.1]), noise=Noise(0.02, degrees=30), confidence=0.95
    )
    assert found.error == pytest.approx(0.02 * np.sqrt(2))
    assert found.degrees == 30
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.1 / (0.02 * np.sqrt(2)), 30))


def test_known_and_own_scatter_are_weighted_by_their_degrees() -> None:
    base, head = np.array([0.0, 0.02, 0.04]), np.array([0.0, 0.03, 0.06])
    own = base.var(ddof=1) * 2 + head.var(ddof=1) * 2
    found = measure_with_noise(base, head, noise=Noise(0.02, degrees=10), confidence=0.95)
    assert found.error == pytest.approx(np.sqrt((10 * 0.02**2 + own) / 14 * 2 / 3))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 3), (4, 6), (5, 5)])
def test_the_rank_distribution_is_that_of_all_arrangements(n: int, m: int) -> None:
    places = range(n + m)
    counts = np.zeros(n * m + 1)
    for head in itertools.combinations(places, m):
        counts[sum(h > b for h in head for b in set(places) - set(head))] += 1
    np.testing.assert_allclose(mann_whitney_cdf(n, m), np.cumsum(counts) / counts.sum())


def test_the_signed_rank_distribution_is_that_of_all_signs() -> None:
    counts = np.zeros(5 * 6 // 2 + 1)
    for signs in itertools.product([0, 1], repeat=5):
        counts[sum(rank * sign for rank, sign in zip(range(1, 6), signs, strict=True))] += 1
    np.testing.assert_allclose(signed_rank_cdf(5), np.cumsum(counts) / 32)


def test_rank_p_values_equal_those_of_scipy() -> None:
    base, head = RNG.normal(0, 1, 9), RNG.normal(1, 1, 7)
    assert mann_whitney_p(base, head) == pytest.approx(stats.mannwhitneyu(base, head, method="exact").pvalue)
    differences = RNG.normal(0.4, 1, 12)
    assert signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)
    many = RNG.normal(0, 1, 80), RNG.normal(0.3, 1, 80)
    assert mann_whitney_p(*many) == pytest.approx(stats.mannwhitneyu(*many).pvalue, rel=0.02)
    many_differences = RNG.normal(0.2, 1, 150)
    assert signed_rank_p(many_differences) == pytest.approx(stats.wilcoxon(many_differences).pvalue, rel=0.05)


def test_equal_values_are_no_difference() -> None:
    assert mann_whitney_p(np.ones(6), np.ones(6)) == 1.0
    assert signed_rank_p(np.zeros(6)) == 1.0


@pytest.mark.parametrize(("n", "m"), [(5, 5), (8, 6), (20, 20), (70, 65)])
def test_rank_limits_reach_their_confidence(n: int, m: int) -> None:
    limits = mann_whitney_limits(n, m, 0.95)
    assert limits is not None
    assert limits.confidence >= 0.95
    assert limits.lower + limits.upper == n * m - 1
    if max(n, m) <= 60:  # the next narrower pair of limits would not
        assert 1 - 2 * mann_whitney_cdf(n, m)[limits.lower + 1] < 0.95


def test_too_few_launches_have_no_rank_limits() -> None:
    assert mann_whitney_limits(3, 3, 0.95) is None
    assert signed_rank_limits(5, 0.95) is None
    assert signed_rank_limits(6, 0.95) is not None
    wide = signed_rank_limits(150, 0.95)
    assert wide is not None
    assert wide.lower + wide.upper == 150 * 151 // 2 - 1


@pytest.mark.parametrize("kind", ["normal", "t", "modes"])
def test_level_and_coverage_by_simulation(kind: str) -> None:
    rng = np.random.default_rng(11)
    shape = (4000, 2, 7)
    noise = {
        "normal": rng.normal(0, 0.01, shape),
        "t": 0.01 * rng.standard_t(3, shape),
        "modes": rng.normal(0, 0.002, shape) + 0.04 * (rng.random(shape) < 0.5),
    }[kind]
    found = measure(noise[:, 0], noise[:, 1] + 0.02, confidence=0.95)
    assert np.mean((found.low <= 0.02) & (found.high >= 0.02)) >= 0.945
    null = measure(noise[:, 0], noise[:, 1], confidence=0.95)
    assert np.mean(null.p_value < 0.005) <= 0.0075


def test_an_interval_that_is_shown_agrees_with_its_p_value() -> None:
    rng = np.random.default_rng(12)
    noise = rng.normal(0, 0.003, (4000, 2, 7)) + 0.15 * (rng.random((4000, 2, 7)) < 0.15)
    found = measure(noise[:, 0], noise[:, 1] + 0.02, confidence=0.95)
    shown = found.p_value < 0.005
    assert shown.sum() > 500
    assert np.all((found.low > 0) | (found.high < 0) | ~shown)


def test_launches_to_detect_give_the_power_that_they_promise() -> None:
    rng, policy = np.random.default_rng(13), Policy()
    launches = launches_to_detect(0.02, np.sqrt(2) * 0.01, policy)
    values = rng.normal(0, 0.01, (4000, 2, launches))
    found = measure(values[:, 0], values[:, 1] + 0.02, confidence=0.95)
    assert np.mean(found.p_value < policy.alpha) == pytest.approx(policy.power, abs=0.06)


def test_the_detectable_difference_needs_the_launches_at_hand() -> None:
    policy, spread, launches = Policy(), 0.02, 12
    size = detectable(spread / np.sqrt(launches), 2 * launches - 2, policy, launches=launches)
    assert launches_to_detect(size * 1.0001, spread, policy) == launches


def test_a_scatter_that_launches_do_not_average_away_has_no_number() -> None:
    assert launches_to_detect(0.01, 0.02, Policy(), fixed=0.02) == MOST_LAUNCHES
    assert 64 < launches_to_detect(0.001, 0.01, Policy()) < MOST_LAUNCHES


def test_a_small_effect_is_decided_by_showing_equivalence() -> None:
    policy = Policy()
    near = launches_to_decide(0.0, 0.02, policy, floor=0.005, margin=0.01)
    between = launches_to_decide(0.004, 0.02, policy, floor=0.005, margin=0.01)
    large = launches_to_decide(0.05, 0.02, policy, floor=0.005, margin=0.01)
    assert large < near < between
