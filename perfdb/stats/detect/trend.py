"""A jump against its rivals: no jump, a straight slope, and for a young jump a bend, all under the learned density."""

from __future__ import annotations

import numpy as np
from numba import njit

from perfdb.stats.detect.density import Density
from perfdb.stats.detect.history import Floats, Ints
from perfdb.stats.detect.launches import Observations
from perfdb.stats.detect.path import COST_CAP_NATS
from perfdb.stats.detect.screen import Segment, drop

_COMMITS = 60  # looked at on each side of a jump
_YOUNG_COMMITS = 40
_BETTER_NATS = 2.0
_BETTER_THAN_BEND_NATS = 3.0
_HALVINGS = 4


def without_trends(segments: list[Segment], observations: Observations, density: Density) -> list[Segment]:
    """A jump stays where a step fits 2 nats better than a line, the newest while young 3 better than a quadratic."""
    place = 1
    while place < len(segments):
        line = _gain_over(2, segments, place, observations, density)
        young = place == len(segments) - 1 and segments[place].size < _YOUNG_COMMITS
        if line < _BETTER_NATS or (
            young and _gain_over(3, segments, place, observations, density) < _BETTER_THAN_BEND_NATS
        ):
            segments = drop(segments, place)
        else:
            place += 1
    return segments


def evidence(segments: list[Segment], place: int, observations: Observations, density: Density) -> float:
    """Nats by which two levels fit better than one around the jump into segment `place`."""
    return _gain_over(1, segments, place, observations, density)


def _gain_over(
    terms: int, segments: list[Segment], place: int, observations: Observations, density: Density
) -> float:
    a, b = segments[place - 1], segments[place]
    commits = np.array([max(a.begin, b.begin - _COMMITS), b.begin, min(b.end, b.begin + _COMMITS)])
    return float(
        _step_gain(
            observations.value, observations.start, observations.scale, observations.weight,
            density.table, density.step, COST_CAP_NATS, commits, a.level, b.level, observations.commit_sigma, terms,
        )
    )  # fmt: skip


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _step_gain(
    value: Floats, start: Ints, scale: Floats, weight: Floats, table: Floats, step: float, cap: float,
    commits: Ints, before: float, after: float, sigma: float, terms: int,
) -> float:  # fmt: skip
    """Cost of the best polynomial with `terms` terms minus cost of the best step over commits (begin, at, end)."""
    begin, at, end = commits
    rows = start[begin : end + 1]
    least = np.empty(end - begin)
    peak = np.argmin(table) - (len(table) - 1) // 2
    for t in range(end - begin):
        low = np.inf
        width = step * scale[begin + t]
        for i in range(rows[t], rows[t + 1]):
            level = value[i] - peak * width
            low = min(low, _commit_cost(value, rows[t], rows[t + 1], weight, table, width, level))
        least[t] = low
    n, m = end - begin, at - begin
    share = m / n
    rise = 3.0 * share * (1.0 - share) * (after - before)  # half of what least squares makes of an ideal step
    stride = max(0.5 * sigma, 0.25 * abs(after - before))
    left = _best_fit(
        value,
        rows[: m + 1],
        scale[begin:at],
        weight,
        table,
        step,
        cap,
        least[:m],
        np.array([before]),
        0.5 * sigma,
    )
    right = _best_fit(
        value, rows[m:], scale[at:end], weight, table, step, cap, least[m:], np.array([after]), 0.5 * sigma
    )
    shape = np.zeros(terms)
    shape[0] = share * before + (1.0 - share) * after
    if terms > 1:
        shape[1] = rise
    return (
        _best_fit(value, rows, scale[begin:end], weight, table, step, cap, least, shape, stride)
        - left
        - right
    )


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _best_fit(
    value: Floats, rows: Ints, scale: Floats, weight: Floats, table: Floats, step: float, cap: float,
    least: Floats, shape: Floats, stride: float,
) -> float:  # fmt: skip
    """Pattern search from `shape`: one term at a time up or down, the stride halved when none helps."""
    best = _fit_cost(value, rows, scale, weight, table, step, cap, least, shape, np.inf)
    for _ in range(_HALVINGS):
        moved = True
        while moved:
            moved = False
            for way in range(2 * len(shape)):
                change = stride if way % 2 == 0 else -stride
                shape[way // 2] += change
                cost = _fit_cost(value, rows, scale, weight, table, step, cap, least, shape, best)
                if cost < best - 1e-6:
                    best = cost
                    moved = True
                else:
                    shape[way // 2] -= change
        stride *= 0.5
    return best


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _fit_cost(
    value: Floats, rows: Ints, scale: Floats, weight: Floats, table: Floats, step: float, cap: float,
    least: Floats, shape: Floats, enough: float,
) -> float:  # fmt: skip
    """Capped cost of commits about the polynomial `shape` in u = -1..1; stops once past `enough`."""
    n = len(rows) - 1
    total = 0.0
    for t in range(n):
        u = (2.0 * t - (n - 1)) / n
        level = shape[-1]
        for k in range(len(shape) - 2, -1, -1):
            level = level * u + shape[k]
        cost = _commit_cost(value, rows[t], rows[t + 1], weight, table, step * scale[t], level)
        total += min(cap, cost - least[t])
        if total > enough:
            break
    return total


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _commit_cost(
    value: Floats, begin: int, end: int, weight: Floats, table: Floats, step: float, level: float
) -> float:
    half = (len(table) - 1) // 2
    total = 0.0
    for i in range(begin, end):
        place = (value[i] - level) / step + half
        if place <= 0.0 or place >= 2 * half:
            total += weight[i] * max(table[0], table[-1])
        else:
            k = int(place)
            total += weight[i] * (table[k] + (place - k) * (table[k + 1] - table[k]))
    return total
