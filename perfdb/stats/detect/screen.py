"""Which jumps of the level path are steps: not passing episodes, changes of noise, trends, or too young to tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdb.stats.detect.history import Floats, Ints

EPISODE_COMMITS = 10
_EPISODE_SIGMA = 3.0
_EPISODE_SHARE = 0.25
_HIDDEN_COMMITS = 8  # on each side, to see a step behind an episode
_NOISE_RATIO = 1.4
_NOISE_COMMITS = 8
NEWEST_COMMITS = 2
_WAIT_AFTER_EPISODE = 11
_WAIT_IF_PASSING = 8


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
    """A passing excursion of the level over commits begin..end (exclusive); open: it has not passed yet."""

    begin: int
    end: int
    delta: float
    is_open: bool = False


@dataclass(frozen=True)
class Passing:
    """Jumps on the log scale that throttling and its like make: of this sign (0: either) and between these sizes."""

    sign: float
    least: float = 0.06
    most: float = 0.20

    def covers(self, delta: float) -> bool:
        return self.least < abs(delta) < self.most and self.sign * delta >= 0.0


@dataclass(frozen=True)
class Settled:
    """Levels that lasted, and the episodes beside them."""

    segments: list[Segment]
    episodes: list[Episode]


def segments_of(bounds: Ints, level: Floats) -> list[Segment]:
    return [Segment(int(a), int(b), float(v)) for a, b, v in zip(bounds[:-1], bounds[1:], level, strict=True)]


def take_out_episodes(
    segments: list[Segment], commit_sigma: float, *, penalty: float = np.inf
) -> tuple[list[Segment], list[Episode]]:
    """One or two short segments between (nearly) equal levels are an episode; the outer segments become one.

    Where the levels outside differ by more than `penalty` nats all the same, a step hides in the episode, anywhere in
    it: it is kept at the middle.
    """
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
                if _hides_step(before, last, commit_sigma, penalty):
                    cut = (middle[0].begin + middle[-1].end) // 2
                    segments[place - 1 : after + 1] = [
                        Segment(before.begin, cut, before.level),
                        Segment(cut, last.end, last.level),
                    ]
                else:
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


def _hides_step(before: Segment, after: Segment, commit_sigma: float, penalty: float) -> bool:
    """Two levels instead of one around an episode: z^2 / 2 nats for normal commits, at most 60 a side."""
    if min(before.size, after.size) < _HIDDEN_COMMITS or not np.isfinite(penalty):
        return False
    delta = abs(after.level - before.level)
    share = 1.0 / min(before.size, 60) + 1.0 / min(after.size, 60)
    return bool(delta > 2.0 * commit_sigma and delta**2 / (2.0 * commit_sigma**2 * share) > penalty)


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


def without_newest(segments: list[Segment], episodes: list[Episode], passing: Passing | None) -> Settled:
    """The newest jumps: with fewer than 2 commits after them nothing, while they may still pass an open episode.

    A jump may still pass for 11 commits where the series has shown an episode of that sign and size, and for 8 where
    it is of the size and sign that throttling makes and nobody has watched the machine.
    """
    n = segments[-1].end
    opened: list[Episode] = []
    while len(segments) > 1:
        begin, delta = segments[-1].begin, segments[-1].level - segments[-2].level
        seen = any(e.delta * delta > 0.0 and abs(delta) > 0.4 * abs(e.delta) for e in episodes)
        wait = _WAIT_AFTER_EPISODE if seen else _WAIT_IF_PASSING if passing and passing.covers(delta) else 0
        if n - begin >= max(wait, NEWEST_COMMITS):
            break
        if n - begin >= NEWEST_COMMITS:
            opened = [Episode(begin, n, delta, is_open=True)]
        segments = drop(segments, len(segments) - 1)
    return Settled(segments, [*episodes, *opened])
