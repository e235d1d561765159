"""Usual rules on the same launches, written from their published constants, beside the verdicts of perfdb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from perfdb.stats import compare

Samples = Sequence[float] | npt.NDArray[np.float64]
Rule = Callable[[Sequence[Samples], Sequence[Samples]], bool]


@dataclass(frozen=True, slots=True)
class Peer:
    """decides: whether the rule calls base and head different."""

    name: str
    decides: Rule


def _medians(launches: Sequence[Samples]) -> npt.NDArray[np.float64]:
    return np.array([float(np.median(launch)) for launch in launches])


def _pooled_iterations(base: Sequence[Samples], head: Sequence[Samples]) -> bool:
    before, after = np.concatenate([*map(np.asarray, base)]), np.concatenate([*map(np.asarray, head)])
    moved = abs(np.median(after) / np.median(before) - 1.0) > 0.01
    return bool(moved and stats.mannwhitneyu(before, after, method="asymptotic").pvalue < 0.01)


def _threshold(base: Sequence[Samples], head: Sequence[Samples]) -> bool:
    return bool(abs(np.median(head[0]) / np.median(base[0]) - 1.0) > 0.05)


def _ranks_of_launches(base: Sequence[Samples], head: Sequence[Samples]) -> bool:
    return bool(stats.mannwhitneyu(_medians(base), _medians(head), method="exact").pvalue < 0.01)


def _welch(base: Sequence[Samples], head: Sequence[Samples]) -> bool:
    return bool(stats.ttest_ind(_medians(base), _medians(head), equal_var=False).pvalue < 0.05)


def _ours(base: Sequence[Samples], head: Sequence[Samples]) -> bool:
    return compare(base, head).outcome.is_change


PEERS = (
    Peer("Mann-Whitney over iterations at .01, 1 % floor", _pooled_iterations),
    Peer("5 % threshold on one launch a side", _threshold),
    Peer("Mann-Whitney over launch medians at .01", _ranks_of_launches),
    Peer("Welch over launch medians at .05", _welch),
    Peer("perfdb compare", _ours),
)
