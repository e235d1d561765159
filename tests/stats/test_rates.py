from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from perfdb.stats import Count, Metric, Outcome, Policy, compare_rates
from perfdb.stats.rates import fisher_p, share_interval, shares_p


def test_more_failures_are_regressed_and_fewer_improved() -> None:
    verdict = compare_rates(Count(10, 1000), Count(40, 1000))
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.ratio == pytest.approx(4.0)
    assert verdict.difference == pytest.approx(0.03)
    assert verdict.low is not None
    assert verdict.high is not None
    assert 1.0 < verdict.low < 4.0 < verdict.high
    assert compare_rates(Count(40, 1000), Count(10, 1000)).outcome is Outcome.IMPROVED


def test_a_success_rate_has_the_other_direction() -> None:
    goodput = Metric(name="goodput", unit="fraction", lower_is_better=False)
    assert compare_rates(Count(990, 1000), Count(900, 1000), metric=goodput).outcome is Outcome.REGRESSED


def test_none_to_none_is_the_same_and_says_what_it_cannot_exclude() -> None:
    verdict = compare_rates(Count(0, 10), Count(0, 10))
    assert (verdict.outcome, verdict.ratio) == (Outcome.SAME, 1.0)
    assert any("cannot exclude a share of 31 %" in sentence for sentence in verdict.reasons)


def test_none_to_five_of_five_is_a_change_without_a_percentage() -> None:
    verdict = compare_rates(Count(0, 5), Count(5, 5))
    assert (verdict.outcome, verdict.ratio, verdict.high) == (Outcome.REGRESSED, None, None)
    assert verdict.low is not None
    assert verdict.low > 0.5
    assert "no percentage" in verdict.reasons[0]


def test_one_launch_out_of_memory_is_not_yet_a_change() -> None:
    verdict = compare_rates(Count(0, 5), Count(1, 5))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.launches_needed is not None
    assert verdict.launches_needed > 1


def test_each_rule_is_a_sentence_and_each_can_hold_back() -> None:
    base, head = Count(1000, 100_000), Count(1300, 100_000)
    verdict = compare_rates(base, head)
    assert verdict.outcome is Outcome.REGRESSED
    assert [sentence.split(":")[0] for sentence in verdict.reasons[:3]] == ["relative", "absolute", "noise"]
    assert compare_rates(base, head, policy=Policy(absolute_floor=0.01)).outcome is Outcome.SAME
    assert not compare_rates(base, head, policy=Policy(relative_floor=0.5)).outcome.is_change


def test_equal_shares_of_many_trials_are_shown_to_be_the_same() -> None:
    assert compare_rates(Count(500_000, 10**6), Count(500_100, 10**6)).outcome is Outcome.SAME


def test_failures_in_bursts_are_worth_fewer() -> None:
    bursts = [Count(0, 100)] * 4 + [Count(40, 100)]
    assert compare_rates(Count(5, 500), Count(40, 500)).outcome is Outcome.REGRESSED
    verdict = compare_rates([Count(1, 100)] * 5, bursts)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert any("bursts" in sentence for sentence in verdict.reasons)
    assert (verdict.n_base, verdict.n_head) == (5, 5)


@pytest.mark.parametrize(("events", "trials"), [(-1, 5), (6, 5), (0, -1)])
def test_impossible_counts_are_refused_with_their_place(events: int, trials: int) -> None:
    with pytest.raises(ValueError, match="head launch 2"):
        compare_rates(Count(0, 5), [Count(0, 5), Count(events, trials)])


def test_no_trials_are_invalid_and_never_a_pass() -> None:
    assert compare_rates([], Count(0, 5)).outcome is Outcome.INVALID
    assert compare_rates(Count(0, 0), Count(0, 5)).outcome is Outcome.INVALID


@pytest.mark.parametrize("table", [(0, 5, 5, 5), (3, 40, 11, 45), (0, 200, 5, 200), (70, 900, 40, 800)])
def test_fisher_equals_scipy(table: tuple[int, int, int, int]) -> None:
    x, n, y, m = table
    expected = stats.fisher_exact([[x, y], [n - x, m - y]]).pvalue
    assert fisher_p(Count(x, n), Count(y, m)) == pytest.approx(expected)


def test_small_counts_use_the_unconditional_test() -> None:
    assert shares_p(Count(0, 5), Count(5, 5)) == pytest.approx(2 / 1024, rel=1e-3)
    assert shares_p(Count(0, 61), Count(5, 61)) == fisher_p(Count(0, 61), Count(5, 61))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5])
def test_the_level_is_kept_at_every_share(share: float) -> None:
    """Exact, not simulated: the chance of every table times whether it is rejected."""
    n, m = 12, 9
    chance = np.outer(stats.binom.pmf(range(n + 1), n, share), stats.binom.pmf(range(m + 1), m, share))
    rejected = [[shares_p(Count(x, n), Count(y, m)) < 0.05 for y in range(m + 1)] for x in range(n + 1)]
    assert chance[np.array(rejected)].sum() <= 0.05


def test_clopper_pearson_equals_scipy() -> None:
    for events, trials in ((0, 10), (3, 10), (10, 10)):
        expected = stats.binomtest(events, trials).proportion_ci(0.95, method="exact")
        assert share_interval(Count(events, trials)) == pytest.approx((expected.low, expected.high))
