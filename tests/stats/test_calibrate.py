from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfdb.stats import InvalidSamplesError, Noise, Outcome, calibrate, compare
from perfdb.stats.calibration import LAUNCHES, PLANNED

History = list[Any]


def history(
    commits: int, *, seed: int, launches: int = 3, between_launches: float = 0.01, between_commits: float = 0.0,
    within: float = 0.005, samples: int = 8, step_at: int | None = None,
) -> History:  # fmt: skip
    rng = np.random.default_rng(seed)
    level = np.zeros(commits)
    if step_at is not None:
        level[step_at:] = 0.2
    level = level + rng.normal(0, between_commits, commits)
    centre = level[:, None] + rng.normal(0, between_launches, (commits, launches))
    values = np.exp(centre[..., None] + rng.normal(0, within, (commits, launches, samples)))
    return list(values.tolist())


def test_each_scatter_is_told_from_the_others() -> None:
    found = calibrate(
        history(300, seed=1, between_launches=0.01, between_commits=0.02, within=0.004, samples=40)
    )
    assert found.noise.between_launches == pytest.approx(0.01, rel=0.15)
    assert found.noise.between_commits == pytest.approx(0.02, rel=0.2)
    assert found.within_launch == pytest.approx(0.004, rel=0.1)
    assert (found.commits, found.launches) == (300, 900)
    assert found.noise.degrees == 600


def test_a_step_in_the_history_is_no_noise() -> None:
    quiet, stepped = (calibrate(history(100, seed=2, step_at=at)).noise for at in (None, 50))
    assert stepped.between_commits < 0.005
    assert stepped.between_launches == pytest.approx(quiet.between_launches, rel=0.01)


def test_workers_that_differ_are_seen() -> None:
    rng = np.random.default_rng(3)
    offset = {"a": -0.05, "b": 0.0, "c": 0.05}
    names = [["a", "b", "c"]] * 60
    values = [[float(np.exp(offset[w] + rng.normal(0, 0.002))) for w in row] for row in names]
    noise = calibrate(values, workers=names).noise
    assert noise.between_workers == pytest.approx(0.05, rel=0.2)
    assert calibrate(values).noise.between_workers is None


def test_false_alarms_are_measured_with_their_interval_and_stay_low() -> None:
    for seed in range(3):
        for operating in calibrate(history(80, seed=seed), seed=seed).operating:
            assert operating.low <= operating.false_alarm_rate <= operating.high
            assert operating.false_alarm_rate <= 0.01


def test_throttled_launches_raise_no_alarms_either() -> None:
    rng = np.random.default_rng(4)
    values = np.exp(rng.normal(0, 0.003, (120, 3)) + 0.15 * (rng.random((120, 3)) < 0.1))
    for operating in calibrate(values).operating:
        assert operating.false_alarm_rate <= 0.01


def test_power_grows_with_effect_and_launches_and_agrees_with_what_is_detectable() -> None:
    found = calibrate(history(150, seed=5))
    assert [operating.launches for operating in found.operating] == list(LAUNCHES)
    for operating in found.operating:
        powers = [power for _, power in operating.power]
        assert powers == sorted(powers)
        assert all(
            power >= 0.7 for size, power in operating.power if size > 1.1 * operating.minimum_detectable
        )
        assert all(
            power <= 0.9 for size, power in operating.power if size < 0.9 * operating.minimum_detectable
        )
    smallest = [operating.minimum_detectable for operating in found.operating]
    assert smallest == sorted(smallest, reverse=True)


def test_launches_needed_fall_with_the_effect() -> None:
    needed = calibrate(history(100, seed=6)).launches_needed
    assert [size for size, _ in needed] == list(PLANNED)
    counts = [count for _, count in needed]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] >= 1


def test_the_noise_is_what_compare_takes() -> None:
    noise = calibrate([10.0, 10.1, 9.9]).noise
    assert isinstance(noise, Noise)
    assert compare([10.0], [20.0], noise=noise).outcome is Outcome.REGRESSED
    assert compare([10.0], [10.15], noise=noise).outcome is Outcome.INCONCLUSIVE


def test_gaps_and_bare_numbers_are_read() -> None:
    found = calibrate([1.0, None, 1.01, [], [[0.99]], [1.0, 1.02], 1.0, 1.01])
    assert (found.commits, found.launches) == (6, 7)
    assert found.within_launch is None


def test_the_same_seed_gives_the_same_figures() -> None:
    values = history(40, seed=7)
    assert calibrate(values, seed=3) == calibrate(values, seed=3)


def test_a_constant_series_has_no_noise_and_no_alarm() -> None:
    found = calibrate([[2.0, 2.0]] * 20)
    assert found.noise.between_launches == 0.0
    assert all(operating.false_alarm_rate == 0.0 for operating in found.operating)
    assert found.operating[0].minimum_detectable == 0.005


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least three launches"):
        calibrate([1.0, 1.0])
    with pytest.raises(InvalidSamplesError, match="commit 1, launch 1"):
        calibrate([1.0, 0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="commit 2"):
        calibrate([1.0, 1.0, [[1.0, float("nan")]], 1.0])
    with pytest.raises(ValueError, match="2 at commit 0 for 1 launches"):
        calibrate([[1.0]] * 4, workers=[["a", "b"]] * 4)
    with pytest.raises(ValueError, match="3 entries for 4 commits"):
        calibrate([[1.0]] * 4, workers=[["a"]] * 3)
