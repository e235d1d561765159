"""Changes that leave the level alone: noise that grew or shrank, and launches that began to fall into a second mode."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import xlogy

from perfdb.stats.detect.density import student
from perfdb.stats.detect.history import Floats
from perfdb.stats.detect.launches import Observations
from perfdb.stats.detect.path import find_path
from perfdb.stats.detect.robust import median, sigma_about_zero
from perfdb.stats.detect.screen import Episode, segments_of, take_out_episodes

_LEAST_COMMITS = 20  # on each side: a spread is known less well than a level
_LEAST_RATIO = 1.5
_VISIBLE_RATIO = 1.1  # of the shrunk local scale; below it nothing has moved by 1.5
_PRICE_FACTOR = 2.0
_OUTSIDE_SIGMA = 4.0
_MODE_NATS = 4.0  # above the price of a jump
_MODE_SHARE = 0.08
_MODE_TIGHTNESS = 0.35


@dataclass(frozen=True)
class SpreadChange:
    """From measured commit `begin` on the spread is exp(after) instead of exp(before); error: of the difference."""

    begin: int
    before: float
    after: float
    error: float


@dataclass(frozen=True)
class NewMode:
    """From measured commit `begin` on a `share` of the launches lies `offset` off the level, with its error."""

    begin: int
    offset: float
    error: float
    share: float


def spread_changes(observations: Observations, penalty: float) -> list[SpreadChange]:
    """The level path of the log spread inside launches (without samples: of the steps between commits)."""
    x = observations.spread
    n = len(x)
    scale = observations.scale
    if n < 2 * _LEAST_COMMITS or scale.max() < _VISIBLE_RATIO * scale.min():
        return []
    sigma = sigma_about_zero(np.diff(x)) / np.sqrt(2.0)
    if sigma <= 0.0:
        return []
    one = np.ones(n)
    alone = Observations(
        index=observations.index, start=np.arange(n + 1), commit=np.arange(n), value=x, weight=one, centre=x,
        scale=one, spread=np.zeros(n), sigma=sigma, commit_sigma=sigma, is_log=True,
    )  # fmt: skip
    path = find_path(alone, student(sigma), penalty=_PRICE_FACTOR * penalty)
    segments, _ = take_out_episodes(segments_of(path.bounds, path.level), sigma)
    found = []
    for a, b in pairwise(segments):
        if min(a.size, b.size) >= _LEAST_COMMITS and abs(b.level - a.level) >= np.log(_LEAST_RATIO):
            error = sigma * np.sqrt(1.4 * (1.0 / a.size + 1.0 / b.size))
            found.append(SpreadChange(b.begin, a.level, b.level, float(error)))
    return found


def new_mode(
    observations: Observations, level: Floats, episodes: list[Episode], penalty: float
) -> NewMode | None:
    """A change of the share of launches far off the level (binomial likelihood ratio), all off by about as much.

    level: of each commit, drift included.
    """
    n = observations.n
    if n < 2 * _LEAST_COMMITS:
        return None
    commit = observations.commit
    off = observations.value - level[commit]
    far = np.abs(off) > _OUTSIDE_SIGMA * observations.sigma * observations.scale[commit]
    for episode in episodes:
        far &= ~((commit >= episode.begin) & (commit < episode.end))
    hits = np.concatenate([[0], np.cumsum(np.bincount(commit, weights=far, minlength=n))])
    total = observations.start.astype(np.float64)
    place = np.arange(_LEAST_COMMITS, n - _LEAST_COMMITS + 1)
    k1, n1, k2, n2 = hits[place], total[place], hits[-1] - hits[place], total[-1] - total[place]
    gain = _binomial(k1, n1) + _binomial(k2, n2) - _binomial(hits[-1], total[-1])
    best = int(np.argmax(gain))
    share, share_before = k2[best] / n2[best], k1[best] / n1[best]
    if gain[best] < penalty + _MODE_NATS or share < max(_MODE_SHARE, 4.0 * share_before + 0.02):
        return None
    begin = int(place[best])
    offsets = off[far & (commit >= begin)]
    offset = median(offsets)
    width = sigma_about_zero(offsets - offset)
    if width > _MODE_TIGHTNESS * abs(offset):
        return None
    return NewMode(begin, offset, float(1.25 * width / np.sqrt(len(offsets))), float(share))


def _binomial(hits: Floats, trials: Floats) -> Floats:
    """Log likelihood at the best share."""
    return np.asarray(xlogy(hits, hits / trials) + xlogy(trials - hits, 1.0 - hits / trials))
