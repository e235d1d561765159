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
from perfdb.stats.detect.spread import NewMode, SpreadChange
from perfdb.stats.policy import Policy

_SPREAD_COMMITS = 5


class ChangeKind(StrEnum):
    """What moved. A step and a ramp move the level; a variance and a new mode last, but leave the level where it is."""

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
    where a level is not positive. Of kind `variance` all of these are of the relative spread inside launches, of kind
    `new-mode` `after` is where the second mode lies.
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
    kept += [_spread(observations, spread, policy) for spread in found.spreads]
    if found.mode is not None:
        kept.append(_mode(observations, found, found.mode, policy))
    return sorted(kept, key=lambda change: (change.index, change.kind))


def _step(observations: Observations, found: Analysis, place: int, policy: Policy) -> Change:
    """The jump into segment `place`; where a ramp leads there, the levels are those outside of it."""
    left, right = found.segments[place - 1], found.segments[place]
    at, ramp, index = right.begin, found.ramps.get(right.begin), observations.index
    since = found.ramps[left.begin].end if left.begin in found.ramps else left.begin
    until = at if ramp is None else ramp.end
    begin, end = max(since, at - effect.LEVEL_COMMITS), min(right.end, until + effect.LEVEL_COMMITS)
    if found.sigma == 0.0:
        return _change(
            observations, effect.Level(left.level, 0.0), effect.Level(right.level, 0.0), policy, kind=ChangeKind.STEP,
            index=int(index[at]), earliest=int(index[at - 1]) + 1, latest=int(index[at]),
        )  # fmt: skip
    flat, scale = found.flat, observations.scale
    before = effect.level_of(flat[begin:at], scale[begin:at], found.sigma, phi=found.phi)
    after = effect.level_of(flat[until:end], scale[until:end], found.sigma, phi=found.phi)
    if ramp is not None:
        return _change(
            observations, before, after, policy, kind=ChangeKind.RAMP, index=int(index[at]),
            earliest=int(index[at - 1]) + 1, latest=int(index[until - 1]), end=int(index[until]),
        )  # fmt: skip
    costs = effect.place_costs(
        flat[begin:end], scale[begin:end] * found.sigma, before.value, after.value, COST_CAP_NATS
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


def _spread(observations: Observations, spread: SpreadChange, policy: Policy) -> Change:
    """Its range is the running median's: what is known of the place of a change of noise."""
    index, at = observations.index, spread.begin
    half = float(ndtri(0.5 + policy.confidence / 2.0)) * spread.error
    delta = spread.after - spread.before
    return Change(
        index=int(index[at]),
        earliest=int(index[max(1, at - _SPREAD_COMMITS) - 1]) + 1,
        latest=int(index[min(len(index) - 1, at + _SPREAD_COMMITS)]),
        ratio=float(np.exp(delta)),
        low=float(np.exp(delta - half)),
        high=float(np.exp(delta + half)),
        kind=ChangeKind.VARIANCE,
        confidence=float(ndtr(abs(delta) / spread.error)),
        before=float(np.exp(spread.before)),
        after=float(np.exp(spread.after)),
    )


def _mode(observations: Observations, found: Analysis, mode: NewMode, policy: Policy) -> Change:
    at = mode.begin
    level = next(s.level for s in found.segments if s.begin <= at < s.end)
    return _change(
        observations, effect.Level(level, 0.0), effect.Level(level + mode.offset, mode.error), policy,
        kind=ChangeKind.NEW_MODE, index=int(observations.index[at]),
        earliest=int(observations.index[max(1, at - _SPREAD_COMMITS) - 1]) + 1,
        latest=int(observations.index[min(len(observations.index) - 1, at + _SPREAD_COMMITS)]),
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
