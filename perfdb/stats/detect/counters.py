"""Counters: series that mostly repeat exact values. The level is one of the values seen; a miss has a fixed price."""

from __future__ import annotations

import numpy as np
from numba import njit

from perfdb.stats.detect.history import Floats, Ints

ZERO_SHARE = 0.4
_MISS_CAP_NATS = 8.0


def is_counter(value: Floats) -> bool:
    """More than 40 % of the steps between neighbouring commits are exactly zero."""
    return len(value) > 1 and float(np.mean(np.diff(value) == 0.0)) > ZERO_SHARE


def counter_bounds(value: Floats, penalty: float, *, deterministic: bool) -> Ints:
    """Bounds of the segments, shape (k + 2,). value: per commit.

    A commit off its segment's value costs min(8, -log((k + 1/2) / (n + 1))) nats, k commits being off. Where none is,
    two equal commits on each side are enough for a step: exact values have no noise to hide in. A metric declared
    deterministic changes with every new value.
    """
    n = len(value)
    if deterministic:
        return np.concatenate([[0], np.flatnonzero(np.diff(value) != 0.0) + 1, [n]])
    levels, cell = np.unique(value, return_inverse=True)
    changed = np.concatenate([[True], np.diff(value) != 0.0, [True]])
    off = int(np.sum(changed[:-1] & changed[1:]))
    bounds = np.array([0, n])
    for _ in range(2):
        miss = min(_MISS_CAP_NATS, -np.log((off + 0.5) / (n + 1.0)))
        price = penalty if off else min(penalty, 1.9 * miss)
        bounds, off = _cheapest(cell, len(levels), miss, price)
    return bounds


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _cheapest(cell: Ints, size: int, miss: float, penalty: float) -> tuple[Ints, int]:
    n = len(cell)
    total = np.zeros(size)
    begun = np.zeros(size, dtype=np.int64)
    best_cell = np.zeros(n, dtype=np.int64)
    best_begun = np.zeros(n, dtype=np.int64)
    best = 0.0
    for t in range(n):
        bound = best + penalty
        best = np.inf
        where = 0
        for j in range(size):
            if t > 0 and total[j] > bound:
                total[j] = bound
                begun[j] = t
            if j != cell[t]:
                total[j] += miss
            if total[j] < best:
                best = total[j]
                where = j
        best_cell[t] = where
        best_begun[t] = begun[where]
    count = 1
    off = 0
    t = n - 1
    while True:
        for i in range(best_begun[t], t + 1):
            off += cell[i] != best_cell[t]
        if best_begun[t] == 0:
            break
        t = best_begun[t] - 1
        count += 1
    bounds = np.empty(count + 1, dtype=np.int64)
    bounds[count] = n
    t = n - 1
    for k in range(count - 1, -1, -1):
        bounds[k] = best_begun[t]
        t = best_begun[t] - 1
    return bounds, off
