"""The incremental form: the same answer, one commit at a time, in bounded space."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from perfdb.stats.changes import ChangeKind, ChangeTracker, find_changes


def history(n: int, steps: dict[int, float], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    level = np.zeros(n)
    for at, size in steps.items():
        level[at:] += math.log1p(size)
    return np.asarray(np.exp(level[:, None, None] + rng.normal(0.0, 0.004, (n, 3, 5))) * 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_the_batch_form_on_the_prefixes(seed: int) -> None:
    raw = history(160, {50: 0.03, 110: -0.05}, seed)
    tracker = ChangeTracker()
    differing = 0
    for place in range(160):
        here = {(c.index, c.kind) for c in tracker.append(raw[place])}
        batch = {(c.index, c.kind) for c in find_changes(raw[: place + 1])}
        differing += here != batch
    assert differing <= 2
    assert [c.index for c in tracker.changes] == [50, 110]


def test_changes_that_left_the_window_stay() -> None:
    raw = history(420, {60: 0.05, 300: 0.05}, 4)
    tracker = ChangeTracker(window=120)
    for row in raw:
        tracker.append(row)
    assert [c.index for c in tracker.changes] == pytest.approx([60, 300], abs=1)


def test_gaps_count_and_errors_name_the_commit_and_leave_the_state() -> None:
    tracker = ChangeTracker()
    for value in [5] * 10 + [None, None] + [6] * 10:
        tracker.append(value)
    (change,) = tracker.changes
    assert (change.index, change.earliest) == (12, 10)
    with pytest.raises(ValueError, match="commit 22, launch 1"):
        tracker.append([[1.0], [math.nan]])
    tracker.append(6)
    assert tracker.changes == [change]


def test_known_health_speaks_at_once() -> None:
    raw = history(83, {80: 0.10}, 5)
    blind, watched = ChangeTracker(), ChangeTracker(watched=True)
    for row in raw:
        blind.append(row)
        watched.append(row, suspect=False)
    assert [c.kind for c in blind.changes] == [ChangeKind.EPISODE]
    assert [c.kind for c in watched.changes] == [ChangeKind.STEP]


def test_a_window_too_short_to_decide_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 100"):
        ChangeTracker(window=20)
