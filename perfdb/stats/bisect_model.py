"""The two ways launches become evidence: levels with noise of unknown law, and failures that are counted.

``LevelModel`` serves times, sizes and fractional rates. ``CountModel`` serves launches that only pass or fail. Both
orient values so that the step that is sought goes up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from perfdb.stats.bisect_likelihood import (
    Data,
    Floats,
    Grid,
    NoiseLaws,
    Zoom,
    log_likelihood,
    make_grid,
)
from perfdb.stats.bisect_posterior import Posterior, Tables, evaluate

ZOOM_PASSES = 4
SMALLEST_STEP = 0.5  # of the alert's size
MINIMUM_LOGIT_STEP = 0.8


@dataclass(frozen=True)
class StepPrior:
    """Lognormal prior of the step's size: ``size`` > 0 is the alert's, ``log_sd`` its uncertainty."""

    size: float
    log_sd: float = 0.4


class LevelModel:
    """Levels under the noise ``laws``; remembers where the levels lay, so that the next grid is dense there."""

    def __init__(self, prior: StepPrior, laws: NoiseLaws) -> None:
        self.prior = prior
        self.laws = laws
        self._zoom: Zoom | None = None

    def posterior(self, data: Data, widths: NDArray[np.int64], n_commits: int) -> Posterior:
        """Evaluate on a grid, and again on a better one until the grid fits the mass it found."""
        zoom = self._zoom or self._first_zoom(data)
        for _ in range(ZOOM_PASSES):
            grid = make_grid(data, zoom, self.prior.size)
            result = evaluate(data, self._tables(data, grid), widths, n_commits)
            fits = _fits(zoom, result.zoom)
            zoom = result.zoom
            if fits:
                break
        self._zoom = zoom
        return result

    def signal(self, zoom: Zoom) -> float:
        """The step in effective sds of a launch."""
        return max(zoom.right - zoom.left, 0.0) / zoom.noise_sd

    def alert_signal(self, zoom: Zoom) -> float:
        """The alert's step in effective sds of a launch."""
        return self.prior.size / zoom.noise_sd

    def _first_zoom(self, data: Data) -> Zoom:
        noise = float(np.exp(np.exp(self.laws.log_prior) @ np.log(self.laws.effective_sd)))
        left, right = float(data.centres[0]), float(data.centres[-1])
        if right - left < 0.3 * self.prior.size:
            right = left + self.prior.size
        left_sd, right_sd = noise / sqrt(data.counts[0]), noise / sqrt(data.counts[-1])
        return Zoom(left, right, left_sd, right_sd, noise)

    def _tables(self, data: Data, grid: Grid) -> Tables:
        difference = grid.levels[None, :] - grid.levels[:, None]
        size, log_sd = self.prior.size, self.prior.log_sd
        wide = max(0.7, 1.5 * log_sd)
        up = 0.85 * _lognormal(difference, 0.9 * size, log_sd) + 0.15 * _lognormal(
            difference, 0.9 * size, wide
        )
        up *= _of_size(difference, size)
        distance = np.abs(difference)
        any_size = _lognormal(distance, 0.9 * size, max(0.8, log_sd)) * _of_size(distance, size)
        span = float(grid.levels[-1] - grid.levels[0])
        return Tables(
            log_likelihood=log_likelihood(data, self.laws, grid.levels),
            log_prior=self.laws.log_prior,
            noise_sd=self.laws.effective_sd,
            levels=grid.levels,
            first=grid.weights / span,
            step=up * grid.weights,
            reversed_step=up.T * grid.weights,
            any_step=0.5 * any_size * grid.weights,
        )


def _fits(old: Zoom, new: Zoom) -> bool:
    for before, after, moved in (
        (old.left_sd, new.left_sd, old.left - new.left),
        (old.right_sd, new.right_sd, old.right - new.right),
    ):
        if not 0.6 < before / after < 2.2 or abs(moved) > before:
            return False
    return True


def _of_size(difference: Floats, size: float) -> Floats:
    """Smooth cut below half of the alert's size: a smaller step is not what was alerted, and endless to exclude."""
    ratio = np.maximum(difference, 1e-9 * size) / (SMALLEST_STEP * size)
    return 1.0 / (1.0 + ratio**-8.0)


def _lognormal(x: Floats, median: float, log_sd: float) -> Floats:
    positive = np.maximum(x, 1e-12 * median)
    density = np.exp(-0.5 * (np.log(positive / median) / log_sd) ** 2) / (positive * log_sd * sqrt(2 * pi))
    return np.where(x > 0, density, 0.0)


class CountModel:
    """Launches that fail (1) or pass (0), or fail in part: a binomial with one unknown rate on each side.

    Good sides are expected to fail seldom and bad sides often, neither for certain; 0 on the good side is allowed.
    """

    def __init__(self) -> None:
        logits = np.linspace(-6.0, 6.0, 61)
        self._rates = 1.0 / (1.0 + np.exp(-logits))
        low = self._rates**0.4 * (1 - self._rates) ** 1.2
        self._low, high = low / low.sum(), self._rates**1.2 * (1 - self._rates) ** 0.4
        rises = logits[None, :] - logits[:, None] >= MINIMUM_LOGIT_STEP
        self._up = _rows(np.where(rises, high[None, :], 0.0))
        self._down = _rows(np.where(rises.T, low[None, :], 0.0))

    def posterior(self, data: Data, widths: NDArray[np.int64], n_commits: int) -> Posterior:
        failed = np.add.reduceat(data.values, data.starts)[:, None]
        passed = data.counts[:, None] - failed
        table = failed * np.log(self._rates) + passed * np.log1p(-self._rates)
        tables = Tables(
            log_likelihood=np.asarray(table[None], dtype=np.float64),
            log_prior=np.zeros(1),
            noise_sd=np.full(1, 0.5),
            levels=self._rates,
            first=self._low,
            step=self._up,
            reversed_step=self._down,
            any_step=0.5 * (self._up + self._down),
        )
        return evaluate(data, tables, widths, n_commits)

    def signal(self, zoom: Zoom) -> float:
        """Separation of a Gaussian with the same Bhattacharyya distance: s^2 = 8 x distance."""
        low, high = zoom.left, max(zoom.right, zoom.left + 1e-6)
        overlap = sqrt(low * high) + sqrt((1 - low) * (1 - high))
        return sqrt(max(-8.0 * log(max(overlap, 1e-9)), 1e-6))

    def alert_signal(self, zoom: Zoom) -> float:
        """As ``signal``: the alert says nothing about rates beyond the direction."""
        return self.signal(zoom)


def _rows(matrix: Floats) -> Floats:
    return np.asarray(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-300))
