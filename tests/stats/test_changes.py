"""Change points: what is found, what is left alone, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perfdb.stats.changes import Change, ChangeKind, find_changes
from perfdb.stats.policy import Metric, Policy, Statistic


def launches(levels: NDArray[np.float64], *, noise: float = 0.004, seed: int = 1) -> NDArray[np.float64]:
    """(commits, 3 launches, 5 samples) around the log levels."""
    rng = np.random.default_rng(seed)
    shape = (len(levels), 3, 5)
    return np.asarray(np.exp(levels[:, None, None] + rng.normal(0.0, noise, shape)) * 1e-3)


def stepped(n: int, at: int, size: float) -> NDArray[np.float64]:
    return np.where(np.arange(n) >= at, math.log1p(size), 0.0)


def kinds(changes: list[Change]) -> list[tuple[int, str]]:
    return [(change.index, str(change.kind)) for change in changes]


def test_a_step_is_found_with_its_size_and_range() -> None:
    (change,) = find_changes(launches(stepped(120, 70, 0.02)))
    assert change.kind is ChangeKind.STEP
    assert change.earliest <= change.index == 70 <= change.latest
    assert change.ratio is not None
    assert change.low is not None
    assert change.high is not None
    assert change.low < 1.02 < change.high
    assert change.high - change.low < 0.01
    assert change.after == pytest.approx(1.02e-3, rel=2e-3)
    assert change.confidence > 0.999


def test_intervals_cover_the_true_ratio() -> None:
    covered = found = 0
    for seed in range(60):
        for change in find_changes(launches(stepped(100, 50, 0.03), seed=seed)):
            found += 1
            assert change.low is not None
            assert change.high is not None
            covered += change.low <= 1.03 <= change.high
    assert found == 60
    assert covered >= 52


def test_a_small_step_between_two_modes_is_found() -> None:
    rng = np.random.default_rng(4)
    modes = 0.03 * (rng.random((200, 3, 1)) < 0.4)
    raw = launches(stepped(200, 120, 0.01), noise=0.003) * np.exp(modes)
    assert [change.index for change in find_changes(raw)] == pytest.approx([120], abs=2)


@pytest.mark.parametrize("seed", range(5))
def test_noise_drift_and_correlation_alone_are_no_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drift = 0.02 * np.sin(np.arange(200) / 30.0 + seed)
    correlated = np.zeros(200)
    for place in range(1, 200):
        correlated[place] = 0.7 * correlated[place - 1] + rng.normal(0.0, 0.004)
    assert find_changes(launches(np.zeros(200), seed=seed)) == []
    assert [c for c in find_changes(launches(drift, seed=seed)) if c.kind is not ChangeKind.EPISODE] == []
    assert find_changes(np.exp(correlated)) == []


def test_a_step_on_a_drift_is_the_only_change() -> None:
    levels = stepped(240, 150, 0.05) + 0.02 * np.sin(2 * np.pi * np.arange(240) / 200)
    assert [change.index for change in find_changes(launches(levels))] == pytest.approx([150], abs=1)


def test_a_passing_excursion_is_an_episode_with_its_end() -> None:
    levels = np.zeros(120)
    levels[60:66] = 0.1
    (change,) = find_changes(launches(levels))
    assert (change.kind, change.index, change.latest, change.end) == (ChangeKind.EPISODE, 60, 65, 66)
    assert change.ratio == pytest.approx(math.exp(0.1), rel=0.01)


def test_a_step_behind_an_episode_is_found_inside_it() -> None:
    levels = stepped(160, 80, 0.02)
    levels[76:82] += 0.12
    changes = find_changes(launches(levels))
    assert [change.kind for change in changes] == [ChangeKind.EPISODE, ChangeKind.STEP]
    assert 76 <= changes[1].index <= 82
    assert changes[1].ratio == pytest.approx(1.02, abs=0.005)


def test_one_outlying_commit_is_no_step() -> None:
    levels = np.zeros(120)
    levels[60] = 0.5
    assert [c for c in find_changes(launches(levels)) if c.kind is not ChangeKind.EPISODE] == []


def test_noise_that_grows_is_no_step() -> None:
    rng = np.random.default_rng(3)
    scale = np.where(np.arange(200) < 100, 0.002, 0.008)[:, None, None]
    raw = np.exp(scale * (rng.exponential(1.0, (200, 3, 5)) - 1.0))
    (change,) = find_changes(raw)
    assert change.kind is ChangeKind.VARIANCE
    assert change.earliest <= 100 <= change.latest
    assert change.ratio == pytest.approx(4.0, rel=0.15)


def test_a_slow_rise_is_one_ramp() -> None:
    levels = math.log1p(0.08) * np.clip((np.arange(160) - 60) / 24, 0.0, 1.0)
    (change,) = find_changes(launches(levels))
    assert change.kind is ChangeKind.RAMP
    assert change.index == pytest.approx(60, abs=3)
    assert change.end == pytest.approx(84, abs=3)
    assert change.ratio == pytest.approx(1.08, rel=0.003)


def test_launches_that_begin_to_fall_into_a_second_mode() -> None:
    rng = np.random.default_rng(8)
    second = (rng.random((160, 3, 1)) < 0.25) & (np.arange(160) >= 90)[:, None, None]
    (change,) = find_changes(launches(np.zeros(160)) * np.exp(0.06 * second))
    assert change.kind is ChangeKind.NEW_MODE
    assert change.earliest <= 90 <= change.latest
    assert change.ratio == pytest.approx(math.exp(0.06), rel=0.005)


def test_two_near_steps_of_one_sign_stay_two_steps() -> None:
    levels = stepped(200, 100, 0.05) + stepped(200, 110, 0.05)
    assert kinds(find_changes(launches(levels))) == [(100, "step"), (110, "step")]


def test_a_recovery_closes_a_step_that_was_seen_at_the_time() -> None:
    assert kinds(find_changes([1.00, 1.00, 1.16, 1.16])) == [(2, "step")]
    (change,) = find_changes([1.00, 1.00, 1.16, 1.16, 1.02, 1.02])
    assert (change.kind, change.earliest, change.latest, change.end) == (ChangeKind.EPISODE, 2, 3, 4)


def test_the_newest_value_alone_is_no_change() -> None:
    assert find_changes([4455, 5259, 9129, 4485]) == []
    rng = np.random.default_rng(0)
    rows = [*(100 + 0.05 * rng.normal(size=30)), *(101 + 0.05 * rng.normal(size=70)), 102.0]
    assert kinds(find_changes(rows)) == [(30, "step")]


def test_exact_series() -> None:
    (change,) = find_changes([5] * 20 + [6] * 20)
    assert (change.index, change.ratio, change.low, change.high) == (20, 1.2, 1.2, 1.2)
    assert find_changes([5] * 40) == []
    (grown,) = find_changes([0] * 20 + [5] * 20, metric=Metric(unit="count"))
    assert (grown.index, grown.ratio, grown.before, grown.after) == (20, None, 0.0, 5.0)
    ticks = 1e6 + np.random.default_rng(1).integers(0, 10, 200).clip(8) - 8.0
    ticks[120:] *= 1.001
    assert kinds(find_changes(ticks)) == [(120, "step")]


def test_a_declared_counter_changes_with_its_newest_value_and_below_every_floor() -> None:
    metric = Metric(name="instructions", unit="count", deterministic=True)
    assert kinds(find_changes([1_000_000] * 5 + [1_000_001], metric=metric)) == [(5, "step")]


def test_a_young_jump_of_the_size_of_throttling_is_an_open_episode_until_the_machine_is_known() -> None:
    raw = launches(stepped(83, 80, 0.10))
    (change,) = find_changes(raw)
    assert (change.kind, change.index, change.end) == (ChangeKind.EPISODE, 80, None)
    assert kinds(find_changes(raw, suspect=[False] * 83)) == [(80, "step")]
    assert kinds(find_changes(launches(stepped(88, 80, 0.10)))) == [(80, "step")]
    assert kinds(find_changes(launches(stepped(83, 80, 0.05)))) == [(80, "step")]
    assert kinds(find_changes(launches(stepped(83, 80, -0.10)))) == [(80, "step")]


def test_suspect_runs_are_left_out() -> None:
    levels = np.zeros(100)
    levels[94:] = 0.08
    flags: list[Any] = [False] * 94 + [[True, True, True]] * 6
    assert find_changes(launches(levels), suspect=flags) == []
    one_launch = launches(np.zeros(100))
    one_launch[:, 1] *= np.where(np.arange(100) >= 60, 1.3, 1.0)[:, None]
    assert find_changes(one_launch, suspect=[[0.0, 1.0, 0.0]] * 100) == []


def test_the_sentinels_step_is_the_machines() -> None:
    levels = stepped(120, 60, 0.04) + stepped(120, 90, 0.03)
    sentinel = np.exp(stepped(120, 60, 0.04)) * (1 + np.random.default_rng(2).normal(0, 0.001, 120))
    assert [c.index for c in find_changes(launches(levels))] == [60, 90]
    assert [c.index for c in find_changes(launches(levels), sentinel=sentinel)] == [90]


def test_gaps_and_ragged_launches_keep_their_positions() -> None:
    rng = np.random.default_rng(5)
    rows: list[Any] = []
    for place in range(100):
        level = 1.0 if place < 52 else 1.05
        rows.append(
            [list(level * np.exp(0.003 * rng.normal(size=rng.integers(3, 8)))) for _ in range(1 + place % 3)]
        )
    for gap in (7, 50, 51):
        rows[gap] = None
    rows[20] = [[], [1.0, 1.001, 0.999]]
    rows[21] = []
    (change,) = find_changes(rows)
    assert (change.index, change.earliest, change.latest) == (52, 50, 52)


@pytest.mark.parametrize(
    ("history", "place"),
    [
        ([1.0] * 5 + [math.nan], "commit 5, launch 0, sample 0"),
        ([[[1.0, 1.0], [1.0, -2.0]]] * 3, "commit 0, launch 1, sample 1"),
        ([[1.0, 2.0], [1.0, math.inf], [1.0]], "commit 1, launch 1"),
        ([1.0, None, [[1.0], ["x"]]], "commit 2, launch 1"),
        ([1.0, None, [[[1.0]]]], "commit 2, launch 0"),
    ],
)
def test_impossible_values_are_refused_with_their_place(history: list[Any], place: str) -> None:
    with pytest.raises(ValueError, match=place):
        find_changes(history)


def test_wrong_health_readings_are_refused() -> None:
    with pytest.raises(ValueError, match="2 entries for 3 commits"):
        find_changes([1.0, 2.0, 3.0], suspect=[False, True])
    with pytest.raises(ValueError, match="commit 0 has 3 launches but 2 flags"):
        find_changes(launches(np.zeros(10)), suspect=[[False, True]] * 10)
    with pytest.raises(ValueError, match="commit 1: a share"):
        find_changes([1.0, 2.0, 3.0], suspect=[0, 2, 0])
    with pytest.raises(ValueError, match="sentinel: 1 entries"):
        find_changes([1.0, 2.0, 3.0], sentinel=[1.0])


@pytest.mark.parametrize("history", [[], [None] * 4, [1.0], [1.0, 2.0], [[], None, 3.0]])
def test_too_little_to_tell(history: list[Any]) -> None:
    assert find_changes(history) == []


def test_floors_of_the_policy_and_negative_values_where_they_can_be() -> None:
    raw = launches(stepped(120, 60, 0.02))
    assert find_changes(raw, policy=Policy(relative_floor=0.03)) == []
    assert find_changes(raw, policy=Policy(absolute_floor=1e-4)) == []
    assert len(find_changes(raw, policy=Policy(absolute_floor=1e-5))) == 1
    loss = np.random.default_rng(6).normal(np.where(np.arange(100) < 60, -3.0, -2.0), 0.1)
    (change,) = find_changes(loss, metric=Metric(name="loss", unit=""))
    assert (change.index, change.ratio) == (60, None)


def test_a_tail_statistic_sees_what_the_median_does_not() -> None:
    raw = np.exp(0.003 * np.random.default_rng(7).normal(size=(80, 3, 40))) * 1e-3
    raw[50:, :, -3:] *= 1.5
    assert kinds(find_changes(raw)) == [(50, "variance")]
    tail = Metric(statistic=Statistic.P95)
    assert [c.index for c in find_changes(raw, metric=tail) if c.kind is ChangeKind.STEP] == [50]


def test_the_answer_depends_on_nothing_but_the_data() -> None:
    raw = launches(stepped(150, 90, 0.02), seed=9)
    expected = find_changes(raw)
    assert find_changes(raw.tolist()) == expected
    assert kinds(find_changes(raw[:, ::-1, ::-1])) == kinds(expected)
    scaled = find_changes(raw * 1024.0)
    assert kinds(scaled) == kinds(expected)
