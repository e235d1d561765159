"""What `compare` refuses, and where it says the fault is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from perfdb.stats import InvalidSamplesError, Metric, Noise, Outcome, Policy, Statistic, compare

GOOD = [[1.0, 1.1, 1.2]] * 3


@pytest.mark.parametrize(
    ("bad", "problem"), [(math.nan, "not finite"), (math.inf, "not finite"), (-0.5, "-0.5 is negative")]
)
def test_impossible_samples_are_refused_with_their_position(bad: float, problem: str) -> None:
    with pytest.raises(InvalidSamplesError, match=problem) as caught:
        compare(GOOD, [[1.0, 1.0], [1.0, 1.0, bad]])
    assert (caught.value.side, caught.value.launch, caught.value.sample) == ("head", 2, 3)
    assert "head launch 2, sample 3" in str(caught.value)


@pytest.mark.parametrize("unit", ["ms", "tokens/s", "B", "objects", "%", "cycles", "MB/s"])
def test_negative_values_are_refused_where_the_unit_cannot_be(unit: str) -> None:
    with pytest.raises(InvalidSamplesError, match="negative"):
        compare([[-1.0]] * 3, GOOD, metric=Metric(unit=unit))


@pytest.mark.parametrize("bad", ["1.0", None, True, [1.0]])
def test_what_is_no_number_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidSamplesError, match=r"base launch 2"):
        compare([[1.0], [bad], [1.0]], GOOD)


def test_an_empty_launch_is_refused() -> None:
    with pytest.raises(InvalidSamplesError, match="head launch 1: no samples"):
        compare(GOOD, [[], [1.0]])


@pytest.mark.parametrize("bad", ["abc", {"a": 1}, 5.0])
def test_a_side_is_a_sequence_of_launches(bad: Any) -> None:
    with pytest.raises(TypeError, match="sequence of launches"):
        compare(GOOD, bad)


def test_numbers_arrays_and_lists_read_alike() -> None:
    values = [1.0, 1.01, 0.99, 1.02]
    expected = compare([[v] for v in values], [[2 * v] for v in values])
    assert compare(values, [2 * v for v in values]) == expected
    assert compare(np.array(values), 2 * np.array(values)[:, None]) == expected


def test_launches_may_differ_in_length() -> None:
    base = [[1.0, 1.01], [0.99, 1.0, 1.0], [1.0], [1.01, 1.0, 1.02], [1.0, 1.0]]
    head = [[2.0, 2.01], [1.99], [2.0, 2.0, 2.0], [2.01], [2.0]]
    assert compare(base, head).outcome is Outcome.REGRESSED


def test_units_of_one_family_are_converted_and_others_refused() -> None:
    base, head = [[990.0]] * 5, [[1.01]] * 5
    verdict = compare(base, head, metric=Metric(unit="us"), head_unit="ms")
    assert verdict.ratio == pytest.approx(1010 / 990)
    with pytest.raises(ValueError, match="different families"):
        compare(base, head, metric=Metric(unit="us"), head_unit="MB")
    with pytest.raises(ValueError, match="unknown"):
        compare(base, head, metric=Metric(unit="us"), head_unit="furlongs")


def test_failures_need_one_count_for_each_launch_and_a_metric_that_can_hold_them() -> None:
    with pytest.raises(ValueError, match="2 failure counts for 3 launches"):
        compare(GOOD, GOOD, base_failures=[0, 1])
    with pytest.raises(ValueError, match="negative"):
        compare(GOOD, GOOD, base_failures=[0, 0, -1])
    with pytest.raises(ValueError, match="lower-is-better"):
        compare(GOOD, GOOD, metric=Metric(lower_is_better=False), head_failures=[1, 0, 0])
    with pytest.raises(ValueError, match="median or a percentile"):
        compare(GOOD, GOOD, metric=Metric(statistic=Statistic.MEAN), head_failures=[1, 0, 0])


def test_workers_need_one_name_for_each_launch() -> None:
    with pytest.raises(ValueError, match="2 workers for 3 launches"):
        compare(GOOD, GOOD, base_workers=["a", "b"], head_workers=["a"] * 3)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_impossible_noise_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="noise"):
        compare(GOOD, GOOD, noise=bad)
    with pytest.raises(ValueError, match="noise"):
        Noise(0.01, between_commits=bad)


@pytest.mark.parametrize("key", ["relative_floor", "equivalence_margin", "few_launches_floor"])
def test_a_threshold_of_five_is_not_taken_for_five_percent(key: str) -> None:
    with pytest.raises(ValueError, match=r"5 % is 0\.05"):
        Policy.from_mapping({key: 5.0})
