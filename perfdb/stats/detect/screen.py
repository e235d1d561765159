"""Which jumps of the level path are steps: not passing episodes, changes of noise, trends, or too young to tell."""

from __future__ import annotations

from dataclasses import dataclass

from perfdb.stats.detect.history import Floats, Ints

EPISODE_COMMITS = 10
_EPISODE_SIGMA = 3.0
_EPISODE_SHARE = 0.25
_NOISE_RATIO = 1.4
_NOISE_COMMITS = 8
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
