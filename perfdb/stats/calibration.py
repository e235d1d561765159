"""What the verdicts of one series are worth, from its own repeats: noise, false alarms, power, cost.

Model (random effects on the log scale; Searle, Casella & McCulloch, *Variance Components*, 3): launch value =
level of its segment + commit + worker + launch. Moments, not robust scales, so that throttled launches count as the
noise that they are. The false-alarm rate and the power are then *measured*: launches are drawn from the series'
residuals, given to the same arithmetic that `compare` uses with this noise, and counted.

It fails where the history holds no change of its noise: a pool that became noisier last week is calibrated by the
average. With one value per commit, launches and commits cannot be told apart and all scatter counts as launch noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdb.stats.changes import ChangeKind, find_changes
from perfdb.stats.effect import Effect, measure_with_noise
from perfdb.stats.launches import InvalidSamplesError, read_side
from perfdb.stats.noise import Noise
from perfdb.stats.planning import detectable, launches_to_detect
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.ranks import Floats
from perfdb.stats.rates import Count, share_interval

LAUNCHES = (3, 5, 10, 20)
EFFECTS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.10)
PLANNED = (0.01, 0.02, 0.05)
NULL_DRAWS = 2000
POWER_DRAWS = 400


@dataclass(frozen=True, slots=True)
class Operating:
    """How verdicts behave with `launches` a side.

    false_alarm_rate: share of draws of equal code called a change, low..high its 95 % binomial interval.
    minimum_detectable: smallest |ratio - 1| found with the policy's power. power: share found for each effect of the
    curve (ratio - 1, power).
    """

    launches: int
    false_alarm_rate: float
    low: float
    high: float
    minimum_detectable: float
    power: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """noise: what `compare(noise=...)` takes. within_launch: log-scale deviation of samples in a launch, None for one
    sample a launch. launches_needed: (ratio - 1, launches a side at the policy's power), at most 10 000.
    commits, launches: how many the figures rest on."""

    noise: Noise
    within_launch: float | None
    operating: tuple[Operating, ...]
    launches_needed: tuple[tuple[float, int], ...]
    commits: int
    launches: int


@dataclass(frozen=True, slots=True)
class _Residuals:
    """Log launch values with commit and segment taken out.

    launch: less the commit's mean, one per launch. commit: commit mean less the segment's mean. counts: launches of
    each commit. segments: how many. of_commit: commit of each launch. spread: range inside each commit.
    """

    launch: Floats
    commit: Floats
    counts: npt.NDArray[np.intp]
    segments: int
    of_commit: npt.NDArray[np.intp]
    spread: Floats


def calibrate(
    history: Sequence[Any] | npt.NDArray[Any],
    *,
    metric: Metric = Metric(),  # noqa: B008  # frozen value, the documented default
    policy: Policy = Policy(),  # noqa: B008  # frozen value, the documented default
    workers: Sequence[Sequence[str] | None] | None = None,
    seed: int = 0,
) -> Calibration:
    """Calibrate one series.

    history: one entry per commit, oldest first: None (or empty) for a gap, a number, or a list of launches, each a
    number or a list of samples in the metric's unit. Level changes found in it are taken out first.
    workers: for each commit the worker of each launch.

    Raises ValueError for impossible samples (with commit, launch and sample), values of zero or below (they have no
    relative noise), and fewer than three measured values to learn from.
    """
    launches, within = _read(history, metric)
    measured = [i for i, values in enumerate(launches) if len(values)]
    if sum(len(launches[i]) for i in measured) < 3:
        raise ValueError("history: at least three launches are needed to learn the noise from")
    starts = _segment_starts(history, metric, policy)
    residuals = _residuals([launches[i] for i in measured], np.searchsorted(starts, measured, side="right"))
    labels = None if workers is None else _labels(workers, launches, measured)
    noise = _noise(residuals, labels)
    rng = np.random.default_rng(seed)
    pool = residuals.launch if len(residuals.launch) > len(residuals.commit) else residuals.commit
    # Centring on n values shrinks them by sqrt(1 - 1/n); undone, so that the pool has the noise's deviation.
    pool = pool * (noise.between_launches / max(float(np.sqrt(np.mean(pool**2))), 1e-300))
    return Calibration(
        noise=noise,
        within_launch=within,
        operating=tuple(_operate(count, pool, noise, policy, rng) for count in LAUNCHES),
        launches_needed=tuple((size, _planned(size, noise, policy)) for size in PLANNED),
        commits=len(measured),
        launches=len(residuals.launch),
    )


def _read(history: Sequence[Any] | npt.NDArray[Any], metric: Metric) -> tuple[list[Floats], float | None]:
    """Log launch values of each commit (empty for a gap), and the median deviation inside a launch."""
    logs: list[Floats] = []
    inside: list[float] = []
    for commit, entry in enumerate(history):
        if entry is None:
            logs.append(np.empty(0))
            continue
        rows = [entry] if np.ndim(entry) == 0 else list(entry)
        side = read_side(f"commit {commit},", [row for row in rows if np.size(row)], metric=metric)
        if len(side.values) and not side.values.min() > 0.0:
            number = int(side.values.argmin()) + 1
            raise InvalidSamplesError(
                f"commit {commit},", number, None, "a value of 0 or below has no relative noise"
            )
        logs.append(np.log(side.values))
        inside.extend(
            float(np.std(np.log(row), ddof=1)) for row in rows if np.size(row) > 1 and np.min(row) > 0
        )
    return logs, float(np.median(inside)) if inside else None


def _segment_starts(history: Sequence[Any] | npt.NDArray[Any], metric: Metric, policy: Policy) -> list[int]:
    """Commits at which the level moves; an episode is a level of its own."""
    starts: set[int] = set()
    for change in find_changes(history, metric=metric, policy=policy):
        if change.kind is not ChangeKind.VARIANCE:
            starts.add(change.index)
            starts.update(() if change.end is None else (change.end,))
    return sorted(starts)


def estimate_noise(commits: Sequence[Sequence[float]], levels: Sequence[int]) -> Noise | None:
    """The scatter of a series whose levels are known already, without the power curves of `calibrate`.

    commits: launch values per measured commit, oldest first. levels: for each commit the number of its level.
    None for fewer than three launches or a value of zero or below (no relative noise).
    """
    rows = [np.asarray(values, dtype=np.float64) for values in commits if len(values)]
    kept = [level for level, values in zip(levels, commits, strict=True) if len(values)]
    if sum(map(len, rows)) < 3 or any(row.min() <= 0.0 for row in rows):
        return None
    return _noise(_residuals([np.log(row) for row in rows], np.asarray(kept)), None)


def _residuals(commits: list[Floats], segment_of: npt.NDArray[np.intp]) -> _Residuals:
    counts = np.array([len(values) for values in commits])
    of_commit = np.repeat(np.arange(len(commits)), counts)
    means = np.array([values.mean() for values in commits])
    _, segment = np.unique(segment_of, return_inverse=True)
    level = np.bincount(segment, weights=means) / np.bincount(segment)
    return _Residuals(
        launch=np.concatenate(commits) - means[of_commit],
        commit=means - level[segment],
        counts=counts,
        segments=len(level),
        of_commit=of_commit,
        spread=np.array([np.ptp(values) for values in commits]),
    )


def _noise(found: _Residuals, labels: npt.NDArray[np.str_] | None) -> Noise:
    """Moment estimates of the variance components."""
    own_degrees = int((found.counts - 1).sum())
    commit_degrees = len(found.counts) - found.segments
    commit_variance = float((found.commit**2).sum()) / commit_degrees if commit_degrees > 0 else 0.0
    if own_degrees < max(1, len(found.counts) // 4):  # in essence one value a commit
        gaps = np.abs(np.diff(found.commit))
        return Noise(
            between_launches=float(np.sqrt(commit_variance)),
            degrees=float(max(commit_degrees, 1)),
            widest_gap=float(gaps.max()) if len(gaps) else None,
        )
    launch_variance = float((found.launch**2).sum()) / own_degrees
    expected = launch_variance * float(np.mean(1.0 / found.counts))
    between_commits = float(np.sqrt(max(0.0, commit_variance - expected)))
    return Noise(
        between_launches=float(np.sqrt(launch_variance)),
        degrees=float(own_degrees),
        between_commits=between_commits if commit_degrees >= 3 else 0.0,
        between_workers=None if labels is None else _between_workers(found, labels, launch_variance),
        widest_gap=float(found.spread.max()),
    )


def _between_workers(found: _Residuals, labels: npt.NDArray[np.str_], launch_variance: float) -> float | None:
    """Deviation of worker means about the level, less what their launches explain; None for one worker."""
    _, worker = np.unique(labels, return_inverse=True)
    counts = np.bincount(worker)
    if len(counts) < 2:
        return None
    means = np.bincount(worker, weights=found.launch + found.commit[found.of_commit]) / counts
    return float(np.sqrt(max(0.0, means.var(ddof=1) - launch_variance * np.mean(1.0 / counts))))


def _labels(
    workers: Sequence[Sequence[str] | None], launches: list[Floats], measured: list[int]
) -> npt.NDArray[np.str_]:
    if len(workers) != len(launches):
        raise ValueError(f"workers: {len(workers)} entries for {len(launches)} commits")
    labels: list[str] = []
    for i in measured:
        names = workers[i] or ()
        if len(names) != len(launches[i]):
            raise ValueError(f"workers: {len(names)} at commit {i} for {len(launches[i])} launches")
        labels.extend(names)
    return np.array(labels)


def _operate(count: int, pool: Floats, noise: Noise, policy: Policy, rng: np.random.Generator) -> Operating:
    base, head = _draw(pool, count, noise, NULL_DRAWS, rng)
    false = int(_found(_measure(base, head, noise, policy), count, noise, policy).sum())
    low, high = share_interval(Count(false, NULL_DRAWS))
    power = []
    for size in EFFECTS:
        effect = _measure(base[:POWER_DRAWS], head[:POWER_DRAWS] + np.log1p(size), noise, policy)
        right = _found(effect, count, noise, policy) & (effect.estimate > 0.0)
        power.append((size, float(right.mean())))
    error = float(np.sqrt(2.0 * noise.between_launches**2 / count + 2.0 * noise.between_commits**2))
    smallest = float(np.expm1(detectable(error, noise.degrees + 2 * count - 2, policy, launches=count)))
    return Operating(count, false / NULL_DRAWS, low, high, max(smallest, policy.relative_floor), tuple(power))


def _draw(
    pool: Floats, count: int, noise: Noise, draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Launches of two commits of equal code, shape (draws, count) each."""
    values = pool[rng.integers(0, len(pool), size=(2, draws, count))]
    values = values + rng.normal(0.0, noise.between_commits, size=(2, draws, 1))
    return values[0], values[1]


def _measure(base: Floats, head: Floats, noise: Noise, policy: Policy) -> Effect:
    return measure_with_noise(base, head, noise=noise, confidence=policy.confidence)


def _found(effect: Effect, count: int, noise: Noise, policy: Policy) -> npt.NDArray[np.bool_]:
    """The relative and the noise rule, as `perfdb.stats.decision` applies them."""
    found = (effect.p_value < policy.alpha) & (np.abs(effect.estimate) >= np.log1p(policy.relative_floor))
    if count < policy.min_launches:
        found &= np.abs(effect.estimate) > noise.plausible_gap
    return np.asarray(found)


def _planned(size: float, noise: Noise, policy: Policy) -> int:
    return launches_to_detect(
        float(np.log1p(size)),
        float(np.sqrt(2.0)) * noise.between_launches,
        policy,
        fixed=float(np.sqrt(2.0)) * noise.between_commits,
        known=noise.degrees,
    )
