"""From raw samples to launch values. The launch is the unit of statistics: each becomes one number here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdb.stats.policy import Metric, Statistic
from perfdb.stats.ranks import Floats
from perfdb.stats.tails import order_rank
from perfdb.stats.units import Family, family

Launch = Sequence[float] | Floats | float
Launches = Sequence[Launch] | Floats

_NEVER_NEGATIVE = frozenset(Family) - {Family.TEMPERATURE}


class InvalidSamplesError(ValueError):
    """A sample that cannot be. `side`, `launch` and `sample` (both from 1) say where."""

    def __init__(self, side: str, launch: int, sample: int | None, problem: str) -> None:
        self.side = side
        self.launch = launch
        self.sample = sample
        place = f"{side} launch {launch}" + (f", sample {sample}" if sample is not None else "")
        super().__init__(f"{place}: {problem}")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    values: one per launch, in the order given, in the metric's unit; infinite where failures reach the statistic.
    samples: finished samples of all launches, one array. fewest: samples of the smallest launch.
    failures: failed requests per launch.
    """

    name: str
    values: Floats
    samples: Floats
    fewest: int
    failures: tuple[int, ...]

    @property
    def launches(self) -> int:
        return len(self.values)

    @property
    def typical(self) -> float | None:
        """Median launch value; None for no launches, or where it is a failure."""
        if not len(self.values):
            return None
        middle = float(np.median(self.values))
        return middle if math.isfinite(middle) else None


def read_side(
    name: str,
    launches: Launches,
    *,
    metric: Metric,
    scale: float = 1.0,
    failures: Sequence[int] | None = None,
) -> Side:
    """Check every sample and reduce each launch to the metric's statistic; values are multiplied by `scale`.

    Raises InvalidSamplesError with the position of a sample that is not a finite number, negative where the unit
    cannot be, and for a launch without samples; ValueError for failure counts that do not fit.
    """
    rows = [_row(name, number, launch) for number, launch in enumerate(_as_rows(name, launches), 1)]
    counts = _failure_counts(name, failures, len(rows), metric)
    samples = np.concatenate(rows) if rows else np.empty(0)
    lowest_allowed = 0.0 if family(metric.unit) in _NEVER_NEGATIVE else -math.inf
    if len(samples) and not (np.isfinite(samples).all() and samples.min() >= lowest_allowed):
        _refuse(name, rows, lowest_allowed)
    for number, (row, failed) in enumerate(zip(rows, counts, strict=True), 1):
        if not len(row) and not failed:
            raise InvalidSamplesError(
                name, number, None, "no samples; a failed launch is a count, not an empty list"
            )
    if scale != 1.0:
        rows, samples = [row * scale for row in rows], samples * scale
    return Side(name, _values(rows, counts, metric), samples, min(map(len, rows), default=0), counts)


def tick(base: Side, head: Side) -> float:
    """The timer's resolution as the samples show it: the smallest gap between two different samples of one side.

    Rounded samples reveal their step; unrounded ones give a gap too small to matter. 0 where nothing is revealed.
    """
    gaps = []
    for side in (base, head):
        ordered = np.sort(side.samples)
        steps = np.diff(ordered)
        steps = steps[steps > 1e-9 * abs(ordered[-1])] if len(steps) else steps
        if len(steps) > 1:
            gaps.append(float(steps.min()))
    return min(gaps, default=0.0)


def _as_rows(name: str, launches: Launches) -> Launches:
    if isinstance(launches, (str, bytes, dict)) or not hasattr(launches, "__len__"):
        raise TypeError(f"{name}: a sequence of launches is wanted, got {type(launches).__name__}")
    return launches


def _row(side: str, number: int, launch: Launch) -> Floats:
    """One launch as a 1-D array; a bare number is a launch of one sample."""
    if isinstance(launch, (str, bytes, dict)):
        raise InvalidSamplesError(side, number, None, f"samples are numbers, got {launch!r}")
    if isinstance(launch, list) and launch and all(type(value) is float for value in launch):
        return np.array(launch)  # the usual case, without the checks below
    try:
        row = np.asarray(launch)
    except ValueError as error:
        raise InvalidSamplesError(side, number, None, "samples are numbers, got nested lists") from error
    if row.size and row.dtype.kind not in "iuf":
        values = np.atleast_1d(row).tolist()
        wrong = next(
            (k for k, v in enumerate(values) if isinstance(v, bool) or not isinstance(v, (int, float))), 0
        )
        raise InvalidSamplesError(side, number, wrong + 1, f"samples are numbers, got {values[wrong]!r}")
    if row.ndim > 1:
        raise InvalidSamplesError(side, number, None, "a launch is one list of samples, got nested lists")
    return np.atleast_1d(row).astype(np.float64)


def _refuse(side: str, rows: list[Floats], lowest_allowed: float) -> None:
    for number, row in enumerate(rows, 1):
        bad = np.flatnonzero(~np.isfinite(row) | (row < lowest_allowed))
        if len(bad):
            value = row[bad[0]]
            problem = (
                f"{value:g} is negative" if value < 0 and math.isfinite(value) else f"{value} is not finite"
            )
            raise InvalidSamplesError(side, number, int(bad[0]) + 1, problem)


def _failure_counts(
    name: str, failures: Sequence[int] | None, launches: int, metric: Metric
) -> tuple[int, ...]:
    if failures is None:
        return (0,) * launches
    counts = tuple(int(count) for count in failures)
    if len(counts) != launches:
        raise ValueError(f"{name}: {len(counts)} failure counts for {launches} launches")
    if any(count < 0 for count in counts):
        raise ValueError(f"{name}: failure count {min(counts)} is negative")
    if any(counts) and metric.lower_is_better is not True:
        raise ValueError(f"{name}: failures rank as +infinity, which only a lower-is-better metric can hold")
    if any(counts) and metric.statistic.quantile is None and metric.statistic is not Statistic.MEDIAN:
        raise ValueError(
            f"{name}: failures rank inside a median or a percentile, not inside a {metric.statistic}"
        )
    return counts


def _values(rows: list[Floats], failures: tuple[int, ...], metric: Metric) -> Floats:
    quantile = metric.statistic.quantile
    if any(failures) and quantile is None:
        quantile = 0.5
    if quantile is not None:
        return np.array([_order_statistic(row, quantile, f) for row, f in zip(rows, failures, strict=True)])
    if rows and all(len(row) == len(rows[0]) for row in rows):
        return _reduce(np.stack(rows), metric.statistic)
    return np.array([_reduce(row, metric.statistic) for row in rows], dtype=np.float64)


def _reduce(samples: Floats, statistic: Statistic) -> Floats:
    """Statistic along the last axis."""
    if statistic is Statistic.MEDIAN:
        ordered = np.sort(samples, axis=-1)
        count = samples.shape[-1]
        return np.asarray((ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2.0)
    if statistic is Statistic.MIN:
        return np.asarray(samples.min(axis=-1))
    if statistic is Statistic.MAX:
        return np.asarray(samples.max(axis=-1))
    return np.asarray(samples.mean(axis=-1))


def _order_statistic(row: Floats, quantile: float, failures: int) -> float:
    rank = order_rank(len(row) + failures, quantile)
    return float(np.partition(row, rank - 1)[rank - 1]) if rank <= len(row) else math.inf
