"""Autocorrelated noise: a run of high commits is then no step, and every commit counts for less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdb.stats.detect.density import Density
from perfdb.stats.detect.drift import Drifted
from perfdb.stats.detect.history import Floats
from perfdb.stats.detect.launches import Observations
from perfdb.stats.detect.path import find_path
from perfdb.stats.detect.robust import sigma_about_zero

PHIS = (0.3, 0.5, 0.7, 0.85)
_FROM_COMMITS = 24
_CLIP_SIGMA = 4.0
_BETTER_NATS = 6.0


@dataclass(frozen=True)
class Correlated:
    """The chosen path and the lag-1 autocorrelation phi (0 for none) of its noise."""

    drawn: Drifted
    phi: float


def with_autocorrelation(
    observations: Observations, density: Density, drawn: Drifted, penalty: float
) -> Correlated:
    """AR(1) noise instead of jumps and drift, where its innovations explain the history 6 nats better.

    A level known from n commits of AR(1) noise is worth n (1 - phi) / (1 + phi) independent ones, so costs are
    multiplied by that.
    """
    none = Correlated(drawn=drawn, phi=0.0)
    n = observations.n
    if not len(drawn.path.jumps) or n < _FROM_COMMITS:
        return none
    residual = _residual(observations, drawn)
    r1 = float(residual[1:] @ residual[:-1]) / max(float(residual @ residual), 1e-300)
    if r1 <= 0.1 + 1.5 / np.sqrt(n):
        return none
    priced = drawn.total - drawn.path.cost + penalty * len(drawn.path.jumps)
    best, best_total = none, _innovations(residual, 0.0) + priced - _BETTER_NATS
    for phi in PHIS:
        path = find_path(observations, density, penalty=penalty, factor=(1.0 - phi) / (1.0 + phi))
        candidate = Drifted(path=path, drift=None, total=path.cost)
        total = _innovations(_residual(observations, candidate), phi) + penalty * len(path.jumps)
        if total < best_total:
            best, best_total = Correlated(drawn=candidate, phi=phi), total
    return best


def _residual(observations: Observations, drawn: Drifted) -> Floats:
    """Commit centre minus level and drift, over the local scale, clipped."""
    drift = 0.0 if drawn.drift is None else drawn.drift
    residual = (observations.centre - drift - drawn.path.per_commit()) / observations.scale
    limit = _CLIP_SIGMA * sigma_about_zero(residual)
    return np.clip(residual, -limit, limit)


def _innovations(residual: Floats, phi: float) -> float:
    """Negative log likelihood of the innovations at their own scale (Student t4), up to a constant of n."""
    innovation = residual[1:] - phi * residual[:-1]
    sigma = max(sigma_about_zero(innovation), 1e-300)
    return float(np.sum(2.5 * np.log1p((innovation / sigma) ** 2 / 4.0)) + len(innovation) * np.log(sigma))
