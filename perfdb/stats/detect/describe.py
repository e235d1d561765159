"""From an analysis to `Change` values: sizes with intervals, ranges, floors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import ndtr, ndtri

from perfdb.stats.detect import effect
from perfdb.stats.detect.engine import Analysis
from perfdb.stats.detect.launches import Observations
from perfdb.stats.detect.path import COST_CAP_NATS
from perfdb.stats.detect.screen import Episode
from perfdb.stats.policy import Policy


class ChangeKind(StrEnum):
    """What moved. Only a step, a ramp and a new mode say that the level lasts."""

    STEP = "step"
    RAMP = "ramp"
    VARIANCE = "variance"
    NEW_MODE = "new-mode"
    EPISODE = "episode"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a series. Commits are positions in the history as given, gaps counted.

    index: first commit of the new level (of the episode, of the ramp). earliest, latest: the commits among which the
    data allow the change to have happened, gaps before it included; of an episode its first and last commit.
    end: first commit after an episode or a ramp. None for a change that lasts from `index` on and for an open episode:
    a young excursion that cannot yet be told from a passing one.
    before, after: levels in the metric's unit. ratio: after / before with its interval low..high; all three are None
    where a level is not positive. Of kind `variance` ratio is that of the spreads.
    confidence: probability that the levels differ in the direction seen, in (0, 1).
    """

    index: int
    earliest: int
    latest: int
    ratio: float | None
    low: float | None
    high: float | None
    kind: ChangeKind
    confidence: float
    before: float
    after: float
    end: int | None = None


def describe(observations: Observations, found: Analysis, policy: Policy) -> list[Change]:
    """The changes of an analysis that pass the policy's floors, oldest first."""
    changes = [_step(observations, found, place, policy) for place in range(1, len(found.segments))]
    changes += [_episode(observations, found, episode, policy) for episode in found.episodes]
    kept = [change for change in changes if _passes_floors(change, policy, exact=found.sigma == 0.0)]
    return sorted(kept, key=lambda change: (change.index, change.kind))


def _step(observations: Observations, found: Analysis, place: int, policy: Policy) -> Change:
    left, right = found.segments[place - 1], found.segments[place]
    at = right.begin
    begin, end = max(left.begin, at - effect.LEVEL_COMMITS), min(right.end, at + effect.LEVEL_COMMITS)
    index = observations.index
    if found.sigma == 0.0:
        first = last = at
        before, after = effect.Level(left.level, 0.0), effect.Level(right.level, 0.0)
    else:
        scale = observations.scale
        before = effect.level_of(found.flat[begin:at], scale[begin:at], found.sigma, phi=found.phi)
        after = effect.level_of(found.flat[at:end], scale[at:end], found.sigma, phi=found.phi)
        costs = effect.place_costs(
            found.flat[begin:end], scale[begin:end] * found.sigma, before.value, after.value, COST_CAP_NATS
        )
        first, last = (begin + where for where in effect.allowed_range(costs, at - begin))
    return _change(
        observations, before, after, policy, kind=ChangeKind.STEP, index=int(index[at]),
        earliest=int(index[first - 1]) + 1, latest=int(index[last]),
    )  # fmt: skip


def _episode(observations: Observations, found: Analysis, episode: Episode, policy: Policy) -> Change:
    index, flat, scale = observations.index, found.flat, observations.scale
    a, b = episode.begin, episode.end
    end = int(index[b]) if b < len(index) else int(index[-1]) + 1
    if found.sigma == 0.0:
        outer = next(s.level for s in found.segments if s.begin <= a < s.end)
        before, after = effect.Level(outer, 0.0), effect.Level(outer + episode.delta, 0.0)
    else:
        outside = np.r_[max(0, a - 30) : a, b : min(len(flat), b + 30)]
        before = effect.level_of(flat[outside], scale[outside], found.sigma, phi=found.phi)
        after = effect.level_of(flat[a:b], scale[a:b], found.sigma, phi=found.phi)
    return _change(
        observations, before, after, policy, kind=ChangeKind.EPISODE, index=int(index[a]),
        earliest=int(index[a]), latest=end - 1, end=None if episode.is_open else end,
    )  # fmt: skip


def _change(
    observations: Observations, before: effect.Level, after: effect.Level, policy: Policy, *,
    kind: ChangeKind, index: int, earliest: int, latest: int, end: int | None = None,
) -> Change:  # fmt: skip
    error = float(np.hypot(before.error, after.error))
    delta = after.value - before.value
    half = float(ndtri(0.5 + policy.confidence / 2.0)) * error
    ratio = low = high = None
    level_before, level_after = before.value, after.value
    if observations.is_log:
        ratio, low, high = (float(np.exp(d)) for d in (delta, delta - half, delta + half))
        level_before, level_after = float(np.exp(before.value)), float(np.exp(after.value))
    elif before.value > 0.0 and after.value > 0.0:
        ratio, low, high = ((before.value + d) / before.value for d in (delta, delta - half, delta + half))
    confidence = float(ndtr(abs(delta) / error)) if error > 0.0 else 1.0
    return Change(
        index=index, earliest=earliest, latest=latest, ratio=ratio, low=low, high=high, kind=kind,
        confidence=confidence, before=level_before, after=level_after, end=end,
    )  # fmt: skip


def _passes_floors(change: Change, policy: Policy, *, exact: bool) -> bool:
    """Both floors of the policy; an exact series has none, since any change of a counter is a change."""
    if exact:
        return True
    if policy.absolute_floor is not None and abs(change.after - change.before) < policy.absolute_floor:
        return False
    return change.ratio is None or abs(change.ratio - 1.0) >= policy.relative_floor
