"""Which jumps of the level path are steps: not passing episodes, changes of noise, trends, or too young to tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from perfdb.stats.detect.history import Floats, Ints

EPISODE_COMMITS = 10
_EPISODE_SIGMA = 3.0
_EPISODE_SHARE = 0.25
_NOISE_RATIO = 1.4
_NOISE_COMMITS = 8
_TREND_COMMITS = 60
_TREND_NATS = 3.0
NEWEST_COMMITS = 2
_NEWEST_AFTER_EPISODE = 11


@dataclass(frozen=True)
class Segment:
    """Measured commits begin..end (exclusive) at one level."""

    begin: int
    end: int
    level: float

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Episode:
    """A passing excursion of the level over commits begin..end (exclusive)."""

    begin: int
    end: int
    delta: float


def segments_of(bounds: Ints, level: Floats) -> list[Segment]:
    return [Segment(int(a), int(b), float(v)) for a, b, v in zip(bounds[:-1], bounds[1:], level, strict=True)]


def take_out_episodes(segments: list[Segment], commit_sigma: float) -> tuple[list[Segment], list[Episode]]:
    """One or two short segments between (nearly) equal levels are an episode; the outer segments become one."""
    segments, episodes = list(segments), []
    place = 1
    while place < len(segments) - 1:
        for inner in (1, 2):
            after = place + inner
            if after < len(segments) and _is_episode(segments[place - 1 : after + 1], commit_sigma):
                before, middle, last = segments[place - 1], segments[place:after], segments[after]
                outer = (before.level * before.size + last.level * last.size) / (before.size + last.size)
                delta = max((s.level - outer for s in middle), key=abs)
                episodes.append(Episode(middle[0].begin, middle[-1].end, delta))
                segments[place - 1 : after + 1] = [Segment(before.begin, last.end, outer)]
                place = max(1, place - 2)
                break
        else:
            place += 1
    return segments, episodes


def _is_episode(run: list[Segment], commit_sigma: float) -> bool:
    before, middle, after = run[0], run[1:-1], run[-1]
    if any(s.size > EPISODE_COMMITS for s in middle):
        return False
    outer = 0.5 * (before.level + after.level)
    excursion = max(abs(s.level - outer) for s in middle)
    return abs(before.level - after.level) < max(_EPISODE_SIGMA * commit_sigma, _EPISODE_SHARE * excursion)


def drop(segments: list[Segment], place: int) -> list[Segment]:
    """Without the jump into segment `place`: it joins the one before."""
    a, b = segments[place - 1], segments[place]
    level = (a.level * a.size + b.level * b.size) / (a.size + b.size)
    return [*segments[: place - 1], Segment(a.begin, b.end, level), *segments[place + 1 :]]


def without_noise_changes(segments: list[Segment], scale: Floats, commit_sigma: float) -> list[Segment]:
    """Skewed noise that grows shifts the level by a share of its growth; such a jump is a change of noise."""
    place = 1
    while place < len(segments):
        at = segments[place].begin
        near = scale[max(0, at - _NOISE_COMMITS) : at + _NOISE_COMMITS]
        low, high = float(near.min()), float(near.max())
        delta = abs(segments[place].level - segments[place - 1].level)
        if high / low > _NOISE_RATIO and delta < 1.2 * (high - low) * commit_sigma:
            segments = drop(segments, place)
        else:
            place += 1
    return segments


def without_trends(segments: list[Segment], centre: Floats, scale: Floats, sigma: float) -> list[Segment]:
    """A jump stays where a step fits 3 nats better than a line (for the newest jump: a quadratic)."""
    place = 1
    while place < len(segments):
        a, b = segments[place - 1], segments[place]
        begin, end = max(a.begin, b.begin - _TREND_COMMITS), min(b.end, b.begin + _TREND_COMMITS)
        newest = place == len(segments) - 1
        x, s = centre[begin:end], scale[begin:end] * sigma
        if _step_gain(x, s, b.begin - begin, 3 if newest else 2) < _TREND_NATS:
            segments = drop(segments, place)
        else:
            place += 1
    return segments


def without_newest(segments: list[Segment], episodes: list[Episode]) -> list[Segment]:
    """A jump needs 2 commits after it, or 11 where the series has shown a passing episode of that sign and size."""
    n = segments[-1].end
    while len(segments) > 1:
        delta = segments[-1].level - segments[-2].level
        seen = any(e.delta * delta > 0.0 and abs(delta) > 0.4 * abs(e.delta) for e in episodes)
        if n - segments[-1].begin >= (_NEWEST_AFTER_EPISODE if seen else NEWEST_COMMITS):
            break
        segments = drop(segments, len(segments) - 1)
    return segments


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _step_gain(x: Floats, sigma: Floats, at: int, terms: int) -> float:
    """Student t4 cost of a polynomial with `terms` terms minus that of a step at `at`, both by reweighting."""
    n = len(x)
    design = np.ones((n, terms))
    for t in range(n):
        u = (t - at) / n
        for k in range(1, terms):
            design[t, k] = design[t, k - 1] * u
    step = np.ones((n, 2))
    step[:at, 1] = 0.0
    return _robust_cost(design, x, sigma) - _robust_cost(step, x, sigma)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _robust_cost(design: Floats, x: Floats, sigma: Floats) -> float:
    n, k = design.shape
    weight = 1.0 / sigma**2
    best = np.inf
    for _ in range(6):
        left = np.zeros((k, k))
        right = np.zeros(k)
        for t in range(n):
            for i in range(k):
                right[i] += weight[t] * design[t, i] * x[t]
                for j in range(k):
                    left[i, j] += weight[t] * design[t, i] * design[t, j]
        trace = 0.0
        for i in range(k):
            trace += left[i, i]
        for i in range(k):
            left[i, i] += 1e-10 * trace
        beta = np.linalg.solve(left, right)
        cost = 0.0
        for t in range(n):
            fit = 0.0
            for i in range(k):
                fit += design[t, i] * beta[i]
            u2 = ((x[t] - fit) / sigma[t]) ** 2
            cost += 2.5 * np.log1p(u2 / 4.0)
            weight[t] = 5.0 / (4.0 + u2) / sigma[t] ** 2
        best = min(best, cost)
    return best
