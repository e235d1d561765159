"""The strategies that the search of perfdb.stats.bisect is compared with, on the same simulated ranges.

Each bisects by midpoints and compares a midpoint with the good end: one launch each, k launches each, or Pinpoint's
doubling of attempts (the rule of Chromium's Pinpoint: p = min of Mann-Whitney and Kolmogorov-Smirnov; p <= .01 is
different, p above a high threshold same, else twice the attempts, 10 to 160).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import ks_2samp, mannwhitneyu

from benchmarks.bisection_worlds import World
from perfdb.stats.bisect import Answer

BUILD_COST = 3.0


class Ledger:
    """Launches of a classical strategy, with their cost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.launches: dict[int, list[float]] = {}
        self.broken: set[int] = set()

    def at_least(self, commit: int, count: int) -> list[float] | None:
        """Log launches of ``commit``, at least ``count``; None where it cannot be built."""
        have = self.launches.setdefault(commit, [])
        if count > len(have):
            more = self.world.launch(commit, count - len(have))
            if more is None:
                self.broken.add(commit)
                del self.launches[commit]
                return None
            have.extend(math.log(value) for value in more)
        return have

    def answer(self, commit: int | None) -> Answer:
        launches = sum(len(values) for values in self.launches.values())
        cost = launches + BUILD_COST * (len(self.launches) + len(self.broken))
        if commit is None:
            return Answer("not_reproduced", (), math.nan, launches, cost, "")
        return Answer("culprit", (commit,), math.nan, launches, cost, "")


def fixed(world: World, k: int) -> Answer:
    """k launches per midpoint, told apart by the middle between the ends' means."""
    ledger = Ledger(world)
    low, high = 0, world.levels.size - 1
    ends = [ledger.at_least(end, k) for end in (low, high)]
    middle = 0.5 * (float(np.mean(ends[0])) + float(np.mean(ends[1])))  # type: ignore[arg-type]  # ends build
    while high - low > 1:
        values = _first_buildable(ledger, low, high, k)
        if values is None:
            break
        commit, launches = values
        if float(np.mean(launches)) > middle:
            high = commit
        else:
            low = commit
    return ledger.answer(high)


def _first_buildable(ledger: Ledger, low: int, high: int, k: int) -> tuple[int, list[float]] | None:
    """The midpoint, or its nearest neighbour that builds."""
    middle = (low + high) // 2
    for commit in sorted(range(low + 1, high), key=lambda c: (abs(c - middle), c)):
        if commit not in ledger.broken:
            launches = ledger.at_least(commit, k)
            if launches is not None:
                return commit, launches
    return None


def doubling(world: World) -> Answer:
    """Pinpoint: find neighbours that differ, splitting the widest pair, until the differing pair is adjacent."""
    ledger = Ledger(world)
    low, high = 0, world.levels.size - 1
    if not _different(ledger, low, high):
        return ledger.answer(None)
    while high - low > 1:
        values = _first_buildable(ledger, low, high, 10)
        if values is None:
            break
        commit = values[0]
        if _different(ledger, low, commit):
            high = commit
        elif _different(ledger, commit, high):
            low = commit
        else:
            return ledger.answer(None)
    return ledger.answer(high)


def _different(ledger: Ledger, a: int, b: int) -> bool:
    attempts = 10
    while True:
        left, right = ledger.at_least(a, attempts), ledger.at_least(b, attempts)
        assert left is not None
        assert right is not None
        p = min(float(mannwhitneyu(left, right).pvalue), float(ks_2samp(left, right).pvalue))
        if p <= 0.01:
            return True
        if p > _high_threshold(attempts) or attempts >= 160:
            return False
        attempts *= 2


def _high_threshold(attempts: int) -> float:
    """Falls with the attempts, so that undecided pairs are measured again and hopeless ones are not."""
    return {10: 0.55, 20: 0.4, 40: 0.25, 80: 0.1}.get(attempts, 0.01)
