"""A young series: a clear step is seen, and nothing else is called one."""

from __future__ import annotations

import numpy as np
import pytest

from perfdb.stats.policy import Metric, Policy
from perfdb.stats.short_history import short_change, short_step


def history(levels: list[float], *, noise: float, seed: int = 0, launches: int = 3) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [(level * np.exp(rng.normal(0, noise, launches))).tolist() for level in levels]


def test_large_step_is_seen_with_its_second_commit() -> None:
    rows: list[list[float] | None] = [*history([1.0] * 6 + [1.3, 1.3], noise=0.02)]
    rows[2] = None
    found = short_change(rows, metric=Metric(), policy=Policy())
    assert found is not None
    assert (found.index, found.earliest, found.latest) == (6, 6, 6)
    assert found.low is not None and found.high is not None  # noqa: PT018  (one fact)
    assert found.low < 1.3 < found.high


def test_a_step_no_larger_than_a_throttled_clock_waits() -> None:
    rows = history([1.0] * 8 + [1.1] * 5, noise=0.005)
    assert short_change(rows[:11], metric=Metric(), policy=Policy()) is None
    found = short_change(rows, metric=Metric(), policy=Policy())
    assert found is not None
    assert found.index == 8


@pytest.mark.parametrize(
    "levels",
    [
        [1.0] * 14,
        [1.0] * 7 + [1.5] + [1.0] * 6,  # one spike
        list(np.linspace(1.0, 1.4, 14)),  # a slope
        [1.0] * 12 + [1.5],  # one commit is not enough
    ],
)
def test_what_is_no_step(levels: list[float]) -> None:
    assert short_change(history(levels, noise=0.01, seed=4), metric=Metric(), policy=Policy()) is None


def test_null_histories_are_left_alone() -> None:
    found = 0
    for seed in range(300):
        rows = history([1.0] * 20, noise=0.02, seed=seed)
        found += short_step([np.log(np.array(row)) for row in rows]) is not None
    assert found <= 1
