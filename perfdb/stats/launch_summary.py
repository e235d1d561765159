"""The summaries stored beside raw samples: many measurements at once, each launch's value by the one definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdb.stats.launches import read_side
from perfdb.stats.policy import Metric
from perfdb.stats.ranks import Floats


@dataclass(frozen=True, slots=True)
class Summaries:
    """Aligned arrays, one entry per measurement, in the metric's unit. `value` is infinite where a failure is it."""

    n: np.ndarray[tuple[int], np.dtype[np.int32]]
    value: Floats
    median: Floats
    mad: Floats
    p99: Floats
    minimum: Floats
    maximum: Floats


def summarise(rows: Sequence[Floats], *, metric: Metric, failures: Sequence[int]) -> Summaries:
    """Summaries of measurements of one metric; every row holds the finished samples of one launch, or none.

    The median, MAD (not scaled) and p99 (order statistic ceil(.99 n)) are those of the finished samples; `value`
    ranks failures as +infinity. A row without samples has NaN everywhere (value: +infinity if it had failures).
    Raises what `perfdb.stats.launches.read_side` raises.
    """
    out = {
        name: np.full(len(rows), math.nan) for name in ("value", "median", "mad", "p99", "minimum", "maximum")
    }
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    for length in np.unique(lengths[lengths > 0]):
        where = np.flatnonzero(lengths == length)
        block = np.sort(np.stack([rows[int(i)] for i in where]), axis=1)
        median = np.median(block, axis=1)
        out["median"][where] = median
        out["mad"][where] = np.median(np.abs(block - median[:, None]), axis=1)
        out["p99"][where] = block[:, math.ceil(0.99 * int(length)) - 1]
        out["minimum"][where], out["maximum"][where] = block[:, 0], block[:, -1]
    ranked = metric.lower_is_better is True and any(failures)
    measured = [i for i in range(len(rows)) if len(rows[i]) or (ranked and failures[i])]
    if measured:
        counts = [failures[i] for i in measured] if ranked else None
        side = read_side("upload", [rows[i] for i in measured], metric=metric, failures=counts)
        out["value"][measured] = side.values
    return Summaries(n=lengths, **out)
