"""The level path: the cheapest piecewise constant level through a history, exact on a grid of levels.

V_t(mu) = c_t(mu) + min(V_{t-1}(mu), min V_{t-1} + P), the Viterbi recursion of a level that may jump anywhere at the
price P (min-plus form; Rabiner 1989, Killick et al. 2012 for the penalised problem). O(n G) time, O(n + G) memory:
each cell remembers where its current segment began, so that no n x G table of arrows is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from perfdb.stats.detect.density import Density
from perfdb.stats.detect.history import Floats, Ints
from perfdb.stats.detect.launches import Observations

COST_CAP_NATS = 8.0  # what one commit can say at most, so that one outlier never makes a step
CELLS_PER_SIGMA = 4.0
_CELLS_BESIDE = 2  # cells kept on each side of a commit's centre; a level lies near data


@dataclass(frozen=True)
class LevelPath:
    """bounds: first commit of each segment, then n, shape (k + 2,) for k jumps. level: per segment. cost: nats."""

    bounds: Ints
    level: Floats
    cost: float

    @property
    def jumps(self) -> Ints:
        return self.bounds[1:-1]

    def per_commit(self) -> Floats:
        return np.repeat(self.level, np.diff(self.bounds))


def find_path(
    observations: Observations,
    density: Density,
    *,
    penalty: float,
    drift: Floats | None = None,
    factor: float = 1.0,
) -> LevelPath:
    """drift: known or fitted, subtracted from every launch of a commit. factor: multiplies each commit's cost."""
    value, centre = observations.value, observations.centre
    if drift is not None:
        value = value - drift[observations.commit]
        centre = centre - drift
    cells = _cells(centre, observations.commit_sigma / CELLS_PER_SIGMA)
    bounds, chosen, cost = _viterbi(
        value, observations.start, observations.scale, observations.weight, cells,
        density.table, density.step, COST_CAP_NATS, factor, penalty,
    )  # fmt: skip
    return LevelPath(bounds=bounds, level=cells[chosen], cost=float(cost))


def _cells(centre: Floats, step: float) -> Floats:
    """Levels on a grid of width `step`, near data only."""
    low = centre.min()
    numbers = np.unique(np.rint((centre - low) / step).astype(np.int64))
    beside = np.arange(-_CELLS_BESIDE, _CELLS_BESIDE + 1)
    cells = np.unique((numbers[:, None] + beside[None, :]).ravel())
    return np.asarray(low + step * cells, dtype=np.float64)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _viterbi(
    value: Floats, start: Ints, scale: Floats, weight: Floats, cells: Floats,
    table: Floats, step: float, cap: float, factor: float, penalty: float,
) -> tuple[Ints, Ints, float]:  # fmt: skip
    n = len(start) - 1
    size = len(cells)
    half = (len(table) - 1) // 2
    tail = max(table[0], table[-1])
    total = np.zeros(size)
    begun = np.zeros(size, dtype=np.int64)
    best_cell = np.zeros(n, dtype=np.int64)
    best_begun = np.zeros(n, dtype=np.int64)
    cost = np.zeros(size)
    best = 0.0
    for t in range(n):
        reach = half * step * scale[t]
        inverse = 1.0 / (step * scale[t])
        low, high = size, 0
        for i in range(start[t], start[t + 1]):
            low = min(low, np.searchsorted(cells, value[i] - reach))
            high = max(high, np.searchsorted(cells, value[i] + reach))
        for j in range(low, high):
            cost[j] = 0.0
        for i in range(start[t], start[t + 1]):
            first = np.searchsorted(cells, value[i] - reach)
            last = np.searchsorted(cells, value[i] + reach)
            for j in range(first, last):
                place = (value[i] - cells[j]) * inverse + half
                k = min(max(int(place), 0), 2 * half - 1)
                share = place - k
                cost[j] += weight[i] * (table[k] + share * (table[k + 1] - table[k]) - tail)
        floor = 0.0
        for j in range(low, high):
            floor = min(floor, cost[j])
        outside = factor * min(cap, -floor)
        bound = best + penalty
        best = np.inf
        where = 0
        for j in range(size):
            if total[j] > bound and t > 0:
                total[j] = bound
                begun[j] = t
            if low <= j < high:
                total[j] += factor * min(cap, cost[j] - floor)
            else:
                total[j] += outside
            if total[j] < best:
                best = total[j]
                where = j
        best_cell[t] = where
        best_begun[t] = begun[where]
    count = 1
    t = n - 1
    while best_begun[t] > 0:
        t = best_begun[t] - 1
        count += 1
    bounds = np.empty(count + 1, dtype=np.int64)
    chosen = np.empty(count, dtype=np.int64)
    bounds[count] = n
    t = n - 1
    for k in range(count - 1, -1, -1):
        bounds[k] = best_begun[t]
        chosen[k] = best_cell[t]
        t = best_begun[t] - 1
    return bounds, chosen, best
