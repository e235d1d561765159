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
        return np.repeat(self.level, self.bounds[1:] - self.bounds[:-1])


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
    cells = _cells(centre, observations.commit_sigma / CELLS_PER_SIGMA, _CELLS_BESIDE)
    bounds, chosen, cost = _viterbi(
        value, observations.start, observations.scale, observations.weight, cells,
        density.table, density.step, COST_CAP_NATS, factor, penalty,
    )  # fmt: skip
    return LevelPath(bounds=bounds, level=cells[chosen], cost=float(cost))


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _cells(centre: Floats, step: float, beside: int) -> Floats:
    """Levels on a grid of width `step`, ascending, those within `beside` cells of some centre only."""
    ordered = np.sort(centre)
    low = ordered[0]
    cells = np.empty(len(centre) * (2 * beside + 1))
    count = 0
    following = -beside
    for x in ordered:
        number = int(np.rint((x - low) / step))
        for k in range(max(following, number - beside), number + beside + 1):
            cells[count] = low + step * k
            count += 1
        following = max(following, number + beside + 1)
    return cells[:count]


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _viterbi(
    value: Floats, start: Ints, scale: Floats, weight: Floats, cells: Floats,
    table: Floats, step: float, cap: float, factor: float, penalty: float,
) -> tuple[Ints, Ints, float]:  # fmt: skip
    """Only cells that some launch of the commit can tell apart are touched.

    All others pay the same, the most anybody pays; that sum is kept once, in `paid`, and `total` is relative to it.
    Relative to `paid` the best never rises, so that a cell left alone for a while needs the jump bound of the newest
    commit only, and the best cell is in reach of the launches or is the best of the commit before.
    """
    n = len(start) - 1
    half = (len(table) - 1) // 2
    tail = max(table[0], table[-1])
    total = np.zeros(len(cells))
    begun = np.zeros(len(cells), dtype=np.int64)
    best_cell = np.zeros(n, dtype=np.int64)
    best_begun = np.zeros(n, dtype=np.int64)
    cost = np.zeros(len(cells))
    paid = 0.0
    best = 0.0
    where = 0
    for t in range(n):
        low, high = _add_launches(
            cost, value, start[t], start[t + 1], scale[t], weight, cells, table, half, step, tail
        )
        floor = 0.0
        for j in range(low, high):
            floor = min(floor, cost[j])
        outside = min(cap, -floor)
        paid += factor * outside
        bound = best + penalty if t > 0 else np.inf
        if low <= where < high:
            best = np.inf
        for j in range(low, high):
            before = total[j]
            if before > bound:
                before = bound
                begun[j] = t
            before += factor * (min(cap, cost[j] - floor) - outside)
            total[j] = before
            cost[j] = 0.0
            if before < best:
                best = before
                where = j
        best_cell[t] = where
        best_begun[t] = begun[where]
    bounds, chosen = _trace(best_cell, best_begun)
    return bounds, chosen, best + paid


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _add_launches(
    cost: Floats, value: Floats, begin: int, end: int, scale: float, weight: Floats, cells: Floats,
    table: Floats, half: int, step: float, tail: float,
) -> tuple[int, int]:  # fmt: skip
    """Add the launches' costs, relative to the table's end, to the cells in reach; their range."""
    reach = (half - 0.5) * step * scale
    inverse = 1.0 / (step * scale)
    low, high = len(cells), 0
    for i in range(begin, end):
        first = np.searchsorted(cells, value[i] - reach)
        last = np.searchsorted(cells, value[i] + reach)
        low, high = min(low, first), max(high, last)
        for j in range(first, last):
            place = (value[i] - cells[j]) * inverse + half
            k = int(place)
            cost[j] += weight[i] * (table[k] + (place - k) * (table[k + 1] - table[k]) - tail)
    return low, high


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _trace(best_cell: Ints, best_begun: Ints) -> tuple[Ints, Ints]:
    """Bounds and cells of the cheapest path, from the best cell of each commit and where its segment began."""
    n = len(best_cell)
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
    return bounds, chosen
