from __future__ import annotations

import numpy as np
import pytest

from perfdb.stats import Outcome, compare, compare_paired


def pairs(
    count: int, *, seed: int, effect: float = 0.0, drift: float = 0.05, second: float = 0.0
) -> tuple[list[float], list[float]]:
    """Launch values on a machine that drifts from pair to pair and is slower for the second launch of a pair."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0.0, drift, count)
    head_second = np.where(np.arange(count) % 2 == 0, 1.0, 0.0)
    base = level + rng.normal(0, 0.002, count) + second * (1 - head_second)
    head = level + rng.normal(0, 0.002, count) + second * head_second + effect
    return list(np.exp(base)), list(np.exp(head))


def test_drift_between_pairs_cancels() -> None:
    base, head = pairs(8, seed=1, effect=0.02)
    assert compare(base, head).outcome is Outcome.INCONCLUSIVE
    verdict = compare_paired(base, head)
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low < np.exp(0.02) < verdict.high
    assert (verdict.n_base, verdict.n_head, verdict.method) == (8, 8, "pairs")
    assert "8 pairs" in verdict.reasons[2]


def test_equal_code_is_the_same() -> None:
    assert compare_paired(*pairs(12, seed=2)).outcome is Outcome.SAME


def test_the_order_inside_a_pair_is_taken_out() -> None:
    base, head = pairs(12, seed=3, effect=0.01, second=0.03)
    in_order = compare_paired(base, head)
    assert in_order.outcome is Outcome.REGRESSED
    assert in_order.ratio == pytest.approx(np.exp(0.01), abs=0.004)
    unaware = compare_paired(base, head, head_first=[False] * 12)
    assert unaware.high is not None
    assert in_order.high is not None
    assert unaware.high - 1 > 2 * (in_order.high - 1)


def test_an_order_effect_alone_is_no_change() -> None:
    assert not compare_paired(*pairs(12, seed=4, second=0.03)).outcome.is_change


@pytest.mark.parametrize(("count", "outcome"), [(1, Outcome.INCONCLUSIVE), (4, Outcome.INCONCLUSIVE)])
def test_few_pairs_decide_only_with_known_noise(count: int, outcome: Outcome) -> None:
    base, head = pairs(count, seed=5, effect=0.05)
    assert compare_paired(base, head).outcome is outcome
    assert compare_paired(base, head, noise=0.002).outcome is Outcome.REGRESSED


def test_a_bad_launch_does_not_hide_the_others() -> None:
    base, head = pairs(14, seed=6, effect=0.02)
    head[3] *= 1.4
    verdict = compare_paired(base, head)
    assert verdict.outcome is Outcome.REGRESSED
    assert verdict.high is not None
    assert verdict.high < 1.05


def test_false_verdicts_and_coverage_by_simulation() -> None:
    false = covered = 0
    for seed in range(400):
        verdict = compare_paired(*pairs(6, seed=seed))
        false += verdict.outcome.is_change
        covered += verdict.low is not None and verdict.high is not None and verdict.low <= 1.0 <= verdict.high
    assert false <= 6
    assert covered >= 376


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="3 launches of base, 2 of head"):
        compare_paired([1.0] * 3, [1.0] * 2)
    with pytest.raises(ValueError, match="2 orders for 3 pairs"):
        compare_paired([1.0] * 3, [1.0] * 3, head_first=[True, False])
    with pytest.raises(ValueError, match="head launch 2, sample 1"):
        compare_paired([1.0] * 3, [1.0, float("nan"), 1.0])
    assert compare_paired([], []).outcome is Outcome.INVALID
