"""The order of the ideas: observe, draw the path, explain it away by drift or correlation, screen what is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from perfdb.stats.detect.autocorrelation import with_autocorrelation
from perfdb.stats.detect.counters import counter_bounds
from perfdb.stats.detect.density import LEARN_FROM_LAUNCHES, Density, learned, student
from perfdb.stats.detect.drift import Drifted, with_drift
from perfdb.stats.detect.history import Floats, Ints
from perfdb.stats.detect.launches import Observations
from perfdb.stats.detect.path import LevelPath, find_path
from perfdb.stats.detect.ramp import Ramp, join_ramps
from perfdb.stats.detect.robust import sigma_about_zero
from perfdb.stats.detect.screen import (
    Episode,
    Passing,
    Segment,
    segments_of,
    take_out_episodes,
    without_newest,
    without_noise_changes,
)
from perfdb.stats.detect.spread import NewMode, SpreadChange, new_mode, spread_changes
from perfdb.stats.detect.trend import without_trends

LEAST_COMMITS = 3


@dataclass(frozen=True)
class Analysis:
    """segments: the levels that lasted. flat: centres without drift. sigma: their noise at scale 1 (0: exact).

    ramps: by the begin of the segment they lead to. last_jump: newest jump of the path before any screen, 0 where
    there is none. ruled_out: see `Drifted`.
    """

    segments: list[Segment]
    episodes: list[Episode]
    flat: Floats
    sigma: float
    phi: float
    ramps: dict[int, Ramp] = field(default_factory=dict)
    spreads: list[SpreadChange] = field(default_factory=list)
    mode: NewMode | None = None
    last_jump: int = 0
    ruled_out: Ints | None = None


def jump_price(n: int) -> float:
    """Nats that a jump must save. In a short history it is dearer: noise and drift are known less well there."""
    return max(11.0, 9.75 + 400.0 / n)


def analyse(
    observations: Observations,
    *,
    deterministic: bool,
    passing: Passing | None = None,
    ruled_out: Ints | None = None,
) -> Analysis:
    """passing: which young jumps may be a disturbance of an unwatched machine; None where its health is known.

    ruled_out: from the analysis of a history a few commits shorter, to save time.
    """
    n = observations.n
    centre = observations.centre
    if n < LEAST_COMMITS and not deterministic:
        return Analysis([Segment(0, n, 0.0)], [], centre, observations.commit_sigma, 0.0)
    if observations.commit_sigma <= 0.0:
        return _analyse_counter(centre, deterministic=deterministic)
    penalty = jump_price(n)
    density, drawn, phi = _draw(observations, penalty, ruled_out)
    flat = centre if drawn.drift is None else centre - drawn.drift
    residual = (flat - drawn.path.per_commit()) / observations.scale
    sigma = max(sigma_about_zero(residual), 0.5 * observations.commit_sigma)
    segments = segments_of(drawn.path.bounds, drawn.path.level)
    segments, episodes = take_out_episodes(segments, observations.commit_sigma, penalty=1.5 * penalty)
    segments = without_noise_changes(segments, observations.scale, observations.commit_sigma)
    if drawn.drift is None:
        segments = without_trends(segments, observations, density)
    settled = without_newest(segments, episodes, passing if observations.is_log else None)
    joined = join_ramps(settled.segments, flat, observations.scale, sigma, penalty)
    lasting = np.repeat([s.level for s in settled.segments], [s.size for s in settled.segments])
    level = lasting + (centre - flat)
    return Analysis(
        segments=joined.segments,
        episodes=settled.episodes,
        flat=flat,
        sigma=sigma,
        phi=phi,
        ramps=joined.ramps,
        spreads=spread_changes(observations, penalty),
        mode=new_mode(observations, level, settled.episodes, penalty),
        last_jump=int(drawn.path.bounds[-2]),
        ruled_out=drawn.ruled_out,
    )


def fitted_level(observations: Observations) -> Floats:
    """Level and drift at each commit without the noise: what a sentinel says of its machine."""
    if observations.n < LEAST_COMMITS or observations.commit_sigma <= 0.0:
        return observations.centre
    _, drawn, _ = _draw(observations, jump_price(observations.n))
    return drawn.path.per_commit() + (0.0 if drawn.drift is None else drawn.drift)


def _analyse_counter(centre: Floats, *, deterministic: bool) -> Analysis:
    bounds = counter_bounds(centre, jump_price(len(centre)), deterministic=deterministic)
    level = np.array([np.median(centre[a:b]) for a, b in pairwise(bounds)])
    segments = segments_of(bounds, level)
    episodes: list[Episode] = []
    if not deterministic:
        segments, episodes = take_out_episodes(segments, 0.0)
        settled = without_newest(segments, episodes, None)
        segments, episodes = settled.segments, settled.episodes
    return Analysis(segments, episodes, centre, 0.0, 0.0, last_jump=int(bounds[-2]))


def _draw(
    observations: Observations, penalty: float, ruled_out: Ints | None = None
) -> tuple[Density, Drifted, float]:
    density = student(observations.sigma)
    path = find_path(observations, density, penalty=1.5 * penalty)
    if len(observations.value) >= LEARN_FROM_LAUNCHES:
        density = _learn(observations, path)
    path = find_path(observations, density, penalty=penalty)
    drawn = with_drift(observations, density, path, penalty, ruled_out=ruled_out)
    found = with_autocorrelation(observations, density, drawn, penalty)
    return density, found.drawn, found.phi


def _learn(observations: Observations, path: LevelPath) -> Density:
    commit = observations.commit
    residual = (observations.value - path.per_commit()[commit]) / observations.scale[commit]
    return learned(residual, observations.sigma)
