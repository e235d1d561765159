"""One slow rise instead of a staircase of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from perfdb.stats.detect.history import Floats, Ints
from perfdb.stats.detect.screen import Segment

_STAIR_COMMITS = 45  # a longer landing between two jumps of one sign keeps them two steps
_BESIDE = 15  # a ramp may begin this many commits before the first jump, or end after the last
_SHORTEST = 3
_BETTER_NATS = 6.0  # for its one or two ends more


@dataclass(frozen=True)
class Ramp:
    """The level moves evenly over measured commits begin..end (exclusive)."""

    begin: int
    end: int


@dataclass(frozen=True)
class Joined:
    """Segments where each ramp is one jump, at the ramp's begin; the ramps by that begin."""

    segments: list[Segment]
    ramps: dict[int, Ramp]


def join_ramps(segments: list[Segment], flat: Floats, scale: Floats, sigma: float, penalty: float) -> Joined:
    """Runs of jumps of one sign become a ramp where a straight rise costs less than the steps and their prices."""
    done = segments[:1]
    ramps: dict[int, Ramp] = {}
    place = 1
    while place < len(segments):
        last = _end_of_run(segments, place)
        before = done[-1]
        if before.begin in ramps:  # its level begins where the ramp to it ends
            before = Segment(ramps[before.begin].end, before.end, before.level)
        run = [before, *segments[place : last + 1]]
        ramp = _ramp_for(run, flat, scale, sigma, penalty)
        if ramp is None:
            done += segments[place : last + 1]
        else:
            done[-1] = Segment(done[-1].begin, ramp.begin, before.level)
            done.append(Segment(ramp.begin, run[-1].end, run[-1].level))
            ramps[ramp.begin] = ramp
        place = last + 1
    return Joined(done, ramps)


def _end_of_run(segments: list[Segment], place: int) -> int:
    rises = segments[place].level > segments[place - 1].level
    while place + 1 < len(segments):
        follows = segments[place + 1].level > segments[place].level
        if follows != rises or segments[place].size > _STAIR_COMMITS:
            break
        place += 1
    return place


def _ramp_for(run: list[Segment], flat: Floats, scale: Floats, sigma: float, penalty: float) -> Ramp | None:
    before, after = run[0], run[-1]
    first, last = run[1].begin, after.begin
    begin, end = max(before.begin, first - 2 * _BESIDE), min(after.end, last + 2 * _BESIDE)
    if first - begin < 2:
        return None
    bounds = np.array([max(s.begin, begin) - begin for s in run] + [end - begin])
    stairs, ramp, start, stop = _cheapest(
        flat[begin:end], scale[begin:end] * sigma, bounds, np.array([s.level for s in run]), _BESIDE
    )
    if stop - start < _SHORTEST or ramp + _BETTER_NATS >= stairs + penalty * (len(run) - 2):
        return None
    return Ramp(begin + int(start), begin + int(stop))


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _cheapest(
    x: Floats, sigma: Floats, bounds: Ints, level: Floats, beside: int
) -> tuple[float, float, int, int]:
    """Student t4 cost of the steps, of the best ramp between the outer levels, and that ramp's begin and end."""
    n = len(x)
    stairs = 0.0
    for j in range(len(level)):
        for t in range(bounds[j], bounds[j + 1]):
            stairs += 2.5 * np.log1p(((x[t] - level[j]) / sigma[t]) ** 2 / 4.0)
    low, high = level[0], level[-1]
    first, last = bounds[1], bounds[-2]
    best, start, stop = np.inf, first, last
    for a in range(max(1, first - beside), first + 1):
        for b in range(last, min(n - 1, last + beside) + 1):
            cost = 0.0
            for t in range(n):
                share = min(1.0, max(0.0, (t - a + 1.0) / (b - a + 1.0)))
                cost += 2.5 * np.log1p(((x[t] - low - share * (high - low)) / sigma[t]) ** 2 / 4.0)
                if cost > best:
                    break
            if cost < best:
                best, start, stop = cost, a, b
    return stairs, best, start, stop
