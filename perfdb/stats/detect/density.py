"""The density of launch noise as a table of -log g, first assumed, then learned from the residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdb.stats.detect.history import Floats

BINS_PER_SIGMA = 16
LEARN_FROM_LAUNCHES = 100
_REACH_FIRST = 12.0
_REACH_LEARNED = (8.0, 40.0)


@dataclass(frozen=True)
class Density:
    """table[k] = -log g((k - half) step), up to a constant; beyond the table the larger end holds."""

    table: Floats
    step: float


def student(sigma: float) -> Density:
    """Student t with 4 degrees of freedom at scale sigma: the assumption before residuals are known."""
    x = np.arange(-_REACH_FIRST * BINS_PER_SIGMA, _REACH_FIRST * BINS_PER_SIGMA + 1) / BINS_PER_SIGMA
    return Density(table=2.5 * np.log1p(x * x / 4.0), step=sigma / BINS_PER_SIGMA)


def learned(residual: Floats, sigma: float) -> Density:
    """0.9 of a Gaussian kernel estimate (Silverman's bandwidth) + 0.1 of Student t3 at twice the scale.

    residual: launch value minus level, over the local scale. The t3 part keeps the tail finite where no residual
    has been seen.
    """
    x = residual / sigma
    far = int(0.995 * (len(x) - 1))
    reach = float(np.clip(1.25 * np.partition(np.abs(x), far)[far], *_REACH_LEARNED))
    half = int(np.ceil(reach * BINS_PER_SIGMA))
    bandwidth = max(0.9 * min(float(x.std()), 1.35) * len(x) ** -0.2, 1.0 / BINS_PER_SIGMA)
    place = np.rint(x * BINS_PER_SIGMA).astype(np.int64) + half
    counts = np.bincount(place[(place >= 0) & (place <= 2 * half)], minlength=2 * half + 1) / len(x)
    width = int(np.ceil(4.0 * bandwidth * BINS_PER_SIGMA))
    kernel = np.exp(-0.5 * (np.arange(-width, width + 1) / (bandwidth * BINS_PER_SIGMA)) ** 2)
    kernel *= BINS_PER_SIGMA / kernel.sum()
    smooth = np.convolve(counts, kernel)[width : width + 2 * half + 1]
    u = np.arange(-half, half + 1) / BINS_PER_SIGMA
    heavy = 0.3675525969478614 / (1.0 + (u / 2.0) ** 2 / 3.0) ** 2 / 2.0
    return Density(table=-np.log(0.9 * smooth + 0.1 * heavy), step=sigma / BINS_PER_SIGMA)
