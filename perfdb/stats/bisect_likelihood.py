"""What launches say about levels: noise laws, an adaptive grid of levels, and log-likelihood tables.

A launch is one number y on an additive scale (the logarithm of a time, the arcsine root of a rate). At a commit whose
level is m, y = m + noise. Which law the noise follows is not known, so a table is made for each of several *laws*
(family and scale, with a prior weight) and the posterior averages over them. The method and its constants follow the
known work on noisy bisection described in docs/bisection.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

T_DF = 3.0
LOG_SPACING = 0.4  # between neighbouring scales of the same family
KERNEL_LAUNCHES = 40  # fewer launches than this do not carry a density estimate
KERNEL_SCALES = (0.8, 1.0, 1.3)
CAUCHY_FLOOR = 0.06
# A t with 3 degrees of freedom and scale b carries the Fisher information (df+1)/(df+3)/b^2 about its centre.
T_EFFECTIVE = float(np.sqrt((T_DF + 3) / (T_DF + 1)))
MAD_NORMAL = 0.6745
MAD_T3 = 0.7649


@dataclass(frozen=True)
class KernelLaw:
    """Log density of noise estimated from a series' own launch residuals, tabulated for interpolation."""

    points: Floats
    log_density: Floats
    effective_sd: float

    def at(self, residuals: Floats) -> Floats:
        """Interpolated; beyond the table it falls with the square of the distance, as its Cauchy floor does."""
        beyond = np.maximum(np.abs(residuals) / self.points[-1], 1.0)
        return np.asarray(np.interp(residuals, self.points, self.log_density) - 2.0 * np.log(beyond))


@dataclass(frozen=True)
class NoiseLaws:
    """The candidate laws: Gaussian and t scales, and optionally a kernel estimate at three scales.

    ``log_prior`` lists the Gaussian laws first, then the t laws, then the kernel's.
    """

    gauss_scales: Floats
    t_scales: Floats
    log_prior: Floats
    kernel: KernelLaw | None = None

    @cached_property
    def effective_sd(self) -> Floats:
        """Per law, the Gaussian sd that would carry the same information about a level."""
        parts = [self.gauss_scales, self.t_scales * T_EFFECTIVE]
        if self.kernel is not None:
            parts.append(self.kernel.effective_sd * np.asarray(KERNEL_SCALES))
        return np.concatenate(parts)


def robust_scale(residuals: Floats) -> float:
    """Median absolute deviation as a Gaussian sd."""
    return float(np.median(np.abs(residuals - np.median(residuals))) / MAD_NORMAL)


def laws_without_history(step: float) -> NoiseLaws:
    """Scales from step/60 to twice the step, because an alert that was raised at all was not far below its noise."""
    low, high = np.log(abs(step) / 60.0), np.log(abs(step) * 2.0)
    scales = np.exp(np.arange(low, high + LOG_SPACING, LOG_SPACING))
    weights = np.full(scales.size, 1.0 / scales.size)
    prior = np.concatenate([0.35 * weights, 0.65 * weights])
    return NoiseLaws(scales, scales / T_EFFECTIVE, np.log(prior))


def laws_from_history(history: Floats, step: float, *, trusted: bool) -> NoiseLaws:
    """Laws centred on the launch-to-launch spread of ``history`` (launches of one benchmark at one level).

    A narrow bell (log-sd .35, wider for a short history) around the history's scale carries 70 % of the prior and a
    wide one the rest, so that a history of something else costs launches rather than a wrong name. ``trusted``: the
    history passed the comparison with this search's own residuals, which admits the kernel estimate.
    """
    residuals = history - np.median(history)
    floor = abs(step) / 60.0
    sd = max(float(np.std(residuals, ddof=1)), floor)
    mad = max(float(np.median(np.abs(residuals))), MAD_NORMAL * sd / 6.0, floor * MAD_NORMAL)
    offsets: Floats = np.arange(-4.0, 6.0) * LOG_SPACING
    narrow_sd = float(np.hypot(0.35, history.size**-0.5))
    bell = 0.7 * _bell(offsets, 0.0, narrow_sd) + 0.3 * _bell(offsets, 0.3, 0.9)
    gauss, t = sd * np.exp(offsets), mad / MAD_T3 * np.exp(offsets)
    kernel = _kernel_law(residuals, sd) if trusted and history.size >= KERNEL_LAUNCHES else None
    if kernel is None:
        return NoiseLaws(gauss, t, np.log(np.concatenate([0.4 * bell, 0.6 * bell])))
    kernel_weights = np.array([0.25, 0.5, 0.25]) * 0.4
    prior = np.concatenate([0.25 * bell, 0.35 * bell, kernel_weights])
    return NoiseLaws(gauss, t, np.log(prior), kernel)


def _bell(offsets: Floats, centre: float, sd: float) -> Floats:
    weights = np.exp(-0.5 * ((offsets - centre) / sd) ** 2)
    return np.asarray(weights / weights.sum())


def _kernel_law(residuals: Floats, sd: float) -> KernelLaw:
    """Adaptive-bandwidth kernel estimate (Abramson 1982, square-root law) with a Cauchy floor for the tails."""
    n = residuals.size
    pilot = max(0.9 * min(sd, robust_scale(residuals) or sd) * n ** (-0.2), sd / 50.0)
    density = np.exp(-0.5 * ((residuals[:, None] - residuals[None, :]) / pilot) ** 2).mean(axis=1) / pilot
    bandwidths = pilot * np.sqrt(np.exp(np.mean(np.log(density))) / density)
    reach = float(np.max(np.abs(residuals))) + 30.0 * sd
    points = np.unique(np.concatenate([np.linspace(-reach, reach, 600), np.linspace(-4 * sd, 4 * sd, 600)]))
    kernels = np.exp(-0.5 * ((points[:, None] - residuals[None, :]) / bandwidths) ** 2)
    estimate = (kernels / bandwidths).mean(axis=1) / np.sqrt(2 * np.pi)
    cauchy = 1.0 / (np.pi * sd * (1.0 + (points / sd) ** 2))
    mixed = (1.0 - CAUCHY_FLOOR) * estimate + CAUCHY_FLOOR * cauchy
    slope = np.gradient(np.log(mixed), points)
    information = float(np.trapezoid(mixed * slope**2, points))
    return KernelLaw(points, np.log(mixed), 1.0 / np.sqrt(max(information, 1.0 / sd**2)))


@dataclass(frozen=True)
class Data:
    """All launches so far, ordered by commit. ``starts[j]`` is where commit ``commits[j]`` begins in ``values``."""

    commits: Ints
    starts: Ints
    counts: Ints
    values: Floats

    @cached_property
    def centres(self) -> Floats:
        """Median launch of each sampled commit."""
        ends = self.starts + self.counts
        return np.array([np.median(self.values[a:b]) for a, b in zip(self.starts, ends, strict=True)])

    def residuals(self) -> Floats:
        """Launches less the median of their own commit, of the commits launched at least three times.

        Scaled by sqrt(n / (n - 1)), since a median of few launches follows them.
        """
        parts = [
            (self.values[a : a + n] - centre) * np.sqrt(n / (n - 1.0))
            for a, n, centre in zip(self.starts, self.counts, self.centres, strict=True)
            if n >= 3
        ]
        return np.concatenate(parts) if parts else np.empty(0)


def collect(launches: dict[int, list[float]]) -> Data:
    """Order launches by commit."""
    commits = sorted(commit for commit, values in launches.items() if values)
    counts = np.array([len(launches[commit]) for commit in commits], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    values = np.concatenate([np.asarray(launches[commit], dtype=np.float64) for commit in commits])
    return Data(np.asarray(commits, dtype=np.int64), starts, counts, values)


@dataclass(frozen=True)
class Grid:
    """Levels with their quadrature (trapezoid) weights; dense where the mass is, sparse elsewhere."""

    levels: Floats
    weights: Floats


@dataclass(frozen=True)
class Zoom:
    """Where the mass of the two levels lies: means and sds, and the noise as an effective sd."""

    left: float
    right: float
    left_sd: float
    right_sd: float
    noise_sd: float


def make_grid(data: Data, zoom: Zoom, step: float) -> Grid:
    """Points around both levels, all launches pooled and commits that fit neither, and a coarse remainder."""
    clusters = [(zoom.left, zoom.left_sd, 15), (zoom.right, zoom.right_sd, 15)]
    total = int(data.counts.sum())
    clusters.append((float(np.median(data.values)), zoom.noise_sd / np.sqrt(total), 9))
    clusters.append((float(np.mean(data.values)), zoom.noise_sd / np.sqrt(total), 9))
    commit_sd = zoom.noise_sd / np.sqrt(data.counts)
    away = np.minimum(
        np.abs(data.centres - zoom.left) / np.hypot(commit_sd, zoom.left_sd),
        np.abs(data.centres - zoom.right) / np.hypot(commit_sd, zoom.right_sd),
    )
    odd = np.argsort(-away)[:6]
    clusters += [(float(data.centres[j]), float(commit_sd[j]), 7) for j in odd if away[j] > 2.0]
    parts = [centre + sd * np.linspace(-3.6, 3.6, count) for centre, sd, count in clusters]
    low = float(min(data.values.min(), zoom.left, zoom.right))
    high = float(max(data.values.max(), zoom.left, zoom.right))
    reach = max(high - low, abs(step))
    parts.append(np.linspace(low - 0.5 * reach, high + 0.5 * reach, 17))
    levels = np.sort(np.concatenate(parts))
    finest = min(sd for _, sd, _ in clusters) * 1e-3
    levels = levels[np.concatenate([[True], np.diff(levels) > finest])]
    gaps = np.diff(levels)
    weights = 0.5 * (np.concatenate([gaps, [0.0]]) + np.concatenate([[0.0], gaps]))
    return Grid(levels, weights)


def log_likelihood(data: Data, laws: NoiseLaws, levels: Floats) -> Floats:
    """Log-likelihood of each sampled commit's launches: an array (laws, commits, levels)."""
    residuals = data.values[:, None] - levels[None, :]
    squares = residuals**2
    n = data.counts[None, :, None].astype(np.float64)
    sums = np.add.reduceat(squares, data.starts, axis=0)[None]
    gauss = laws.gauss_scales[:, None, None]
    tables = [-0.5 * sums / gauss**2 - n * np.log(gauss * np.sqrt(2 * np.pi))]
    constant = np.log(6.0 * np.sqrt(3.0) / (9.0 * np.pi))  # density of t3 at its centre: 2 / (pi sqrt 3)
    terms = np.log1p(squares[None] / (T_DF * laws.t_scales[:, None, None] ** 2))
    t_sums = np.add.reduceat(terms, data.starts, axis=1)
    tables.append(-0.5 * (T_DF + 1) * t_sums + n * (constant - np.log(laws.t_scales[:, None, None])))
    if laws.kernel is not None:
        for scale in KERNEL_SCALES:
            density = laws.kernel.at(residuals / scale) - np.log(scale)
            tables.append(np.add.reduceat(density, data.starts, axis=0)[None])
    return np.concatenate(tables, axis=0)
