"""Posterior over what happened in a range of commits: nothing, one step, a reversed step, or several.

Hypotheses. *none*: one level everywhere. *one*: a step at commit c (the first commit at the new level), c uniform over
the range, its size and sign about those of the alert. *reversed*: the same with the other sign. *several*: two or more
steps of any sign, positions independent and uniform. *hidden*: none that was seen, but the level rose and came back
between two sampled commits. Levels are integrated over a grid, noise laws are averaged, and
of the position only the gap between two sampled commits matters. *one* and *reversed* are two matrix products;
*several* is a hidden Markov chain along the sampled commits whose state is the level and whether one step or more were
seen (forward and backward sums, Rabiner 1989).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfdb.stats.bisect_likelihood import Data, Floats, Zoom

PRIOR_NONE = 0.2
PRIOR_ONE = 0.71
PRIOR_REVERSED = 0.02
PRIOR_SEVERAL = 0.07
PRIOR_HIDDEN = 0.02
TINY = 1e-300


@dataclass(frozen=True)
class Tables:
    """Everything the posterior needs: log-likelihoods (laws, sampled commits, levels) and priors on the grid.

    ``first`` is the prior weight of each level at the good end. ``step``, ``reversed_step`` and ``any_step`` are
    (levels, levels) matrices, from row to column, quadrature weights included.
    """

    log_likelihood: Floats
    log_prior: Floats
    noise_sd: Floats
    levels: Floats
    first: Floats
    step: Floats
    reversed_step: Floats
    any_step: Floats


@dataclass(frozen=True)
class Posterior:
    """Probabilities after the launches so far.

    Gap j lies between the sampled commits j and j + 1. ``one_gaps[j]``: *one*, its step in gap j. ``hidden_gaps[j]``:
    a rise and a return to the old level, both inside gap j. ``several_gaps[j]``: a step in gap j, given *several*.
    ``several_levels`` and ``several_sds``: mean and sd of the level of each sampled commit, given *several*.
    """

    none: float
    reversed: float
    several: float
    one_gaps: Floats
    hidden_gaps: Floats
    several_gaps: Floats
    several_levels: Floats
    several_sds: Floats
    zoom: Zoom

    @property
    def one(self) -> float:
        return float(self.one_gaps.sum())

    @property
    def step(self) -> float:
        """Expected size of the step given *one*, on the scale of the likelihood."""
        return self.zoom.right - self.zoom.left

    def gaps(self) -> Floats:
        """Probability of a step in each gap, whatever else happened."""
        return self.one_gaps + self.several * self.several_gaps


def evaluate(data: Data, tables: Tables, widths: NDArray[np.int64], n_commits: int) -> Posterior:
    """Posterior given the tables. ``widths[j]`` counts the commits whose step would lie in gap j."""
    log_l = tables.log_likelihood
    left = np.cumsum(log_l, axis=1)
    total = left[:, -1:, :]
    right = total - left
    log_share = np.log(np.maximum(widths / float(n_commits), TINY))

    left_peak = left[:, :-1].max(axis=2, keepdims=True)
    right_peak = right[:, :-1].max(axis=2, keepdims=True)
    total_peak = total.max(axis=2)
    lefts = np.exp(left[:, :-1] - left_peak) * tables.first
    rights = np.exp(right[:, :-1] - right_peak)
    onward = rights @ tables.step.T
    peaks = (left_peak + right_peak)[..., 0] + tables.log_prior[:, None] + log_share
    log_one = np.log(PRIOR_ONE) + peaks + _log((lefts * onward).sum(axis=2))
    log_reversed = np.log(PRIOR_REVERSED) + peaks
    log_reversed += _log(((lefts @ tables.reversed_step) * rights).sum(axis=2))
    log_none = np.log(PRIOR_NONE) + tables.log_prior + total_peak[:, 0]
    log_none += _log(np.exp(total[:, 0] - total_peak) @ tables.first)

    promise = np.maximum(peaks.max(axis=1), log_none)
    kept = np.argsort(-promise, kind="stable")[: max(1, (promise.size + 1) // 2)]
    chain = _chain(log_l[kept], tables, np.exp(log_share))
    log_several = np.log(PRIOR_SEVERAL) + tables.log_prior[kept] + chain.log_evidence

    peak = max(
        float(log_one.max()), float(log_none.max()), float(log_reversed.max()), float(log_several.max())
    )
    none, one = np.exp(log_none - peak).sum(), np.exp(log_one - peak)
    backwards, several = np.exp(log_reversed - peak).sum(), np.exp(log_several - peak)
    hidden = none * (PRIOR_HIDDEN / PRIOR_NONE) * np.exp(2.0 * log_share)
    evidence = float(none + one.sum() + backwards + several.sum() + hidden.sum())

    zoom = _zoom(data, tables, np.exp(log_one - log_one.max()), lefts, onward, rights)
    blend = np.exp(log_several - log_several.max())
    blend /= blend.sum()
    means = blend @ chain.means
    spread = blend @ (chain.variances + (chain.means - means) ** 2)
    return Posterior(
        none=float(none / evidence),
        reversed=float(backwards / evidence),
        several=float(several.sum() / evidence),
        one_gaps=one.sum(axis=0) / evidence,
        hidden_gaps=hidden / evidence,
        several_gaps=blend @ chain.gaps,
        several_levels=means,
        several_sds=np.sqrt(np.maximum(spread, 0.0)),
        zoom=zoom,
    )


def _log(positive: Floats) -> Floats:
    return np.log(np.maximum(positive, TINY))


def _zoom(data: Data, tables: Tables, weight: Floats, lefts: Floats, onward: Floats, rights: Floats) -> Zoom:
    """Means and sds of both levels given *one*, and the mean noise."""
    mass = np.maximum((lefts * onward).sum(axis=2), TINY)
    share = weight / weight.sum()
    left = ((share / mass)[..., None] * lefts * onward).sum(axis=(0, 1))
    right = ((share / mass)[..., None] * (lefts @ tables.step) * rights).sum(axis=(0, 1))
    by_law = share.sum(axis=1)
    noise = float(np.exp((by_law * np.log(tables.noise_sd)).sum()))
    means, sds = [], []
    for density in (left, right):
        total = max(float(density.sum()), TINY)
        mean = float(density @ tables.levels) / total
        variance = float(density @ (tables.levels - mean) ** 2) / total
        means.append(mean)
        sds.append(max(np.sqrt(max(variance, 0.0)), noise / np.sqrt(4.0 * data.values.size)))
    return Zoom(means[0], means[1], 1.5 * sds[0], 1.5 * sds[1], noise)


@dataclass(frozen=True)
class _Chain:
    """Per law: evidence of *several*, probability of a step per gap, mean and variance of each commit's level."""

    log_evidence: Floats
    gaps: Floats
    means: Floats
    variances: Floats


def _chain(log_l: Floats, tables: Tables, share: Floats) -> _Chain:
    """Forward and backward sums over the number of steps seen (0, 1, two or more) and the level.

    A path with steps in gaps a < b has prior 2 share_a share_b; each further step multiplies by its share.
    """
    laws, commits, size = log_l.shape
    peaks = log_l.max(axis=2, keepdims=True)
    likelihood = np.exp(log_l - peaks)
    jump, jump_back = tables.any_step, np.ascontiguousarray(tables.any_step.T)

    forward = np.zeros((commits, 3, laws, size))
    log_scale = peaks[:, 0, 0].copy()
    forward[0, 0] = tables.first * likelihood[:, 0]
    for j in range(1, commits):
        h = share[j - 1]
        jumped = (forward[j - 1].reshape(3 * laws, size) @ jump).reshape(3, laws, size)
        forward[j, 0] = forward[j - 1, 0]
        forward[j, 1] = forward[j - 1, 1] + h * jumped[0]
        forward[j, 2] = forward[j - 1, 2] + h * (2.0 * jumped[1] + jumped[2])
        forward[j] *= likelihood[:, j]
        norm = np.maximum(forward[j].sum(axis=(0, 2)), TINY)
        forward[j] /= norm[:, None]
        log_scale += np.log(norm) + peaks[:, j, 0]
    log_evidence = log_scale + _log(forward[-1, 2].sum(axis=1))

    # backward[n]: all later launches and at least (2 - n) further steps, given n steps so far and the level
    backward = np.zeros((3, laws, size))
    backward[2] = 1.0
    gaps = np.zeros((laws, commits - 1))
    means, variances = np.zeros((laws, commits)), np.zeros((laws, commits))
    for j in range(commits - 1, -1, -1):
        density = (forward[j] * backward).sum(axis=0)
        mass = np.maximum(density.sum(axis=1), TINY)
        means[:, j] = density @ tables.levels / mass
        variances[:, j] = (density * (tables.levels - means[:, j : j + 1]) ** 2).sum(axis=1) / mass
        if j == 0:
            break
        h = share[j - 1]
        seen = likelihood[:, j] * backward
        jumped = (seen.reshape(3 * laws, size) @ jump_back).reshape(3, laws, size)
        stay = (forward[j - 1] * seen).sum(axis=(0, 2))
        previous = forward[j - 1]
        moved = h * (previous[0] * jumped[1] + 2.0 * previous[1] * jumped[2] + previous[2] * jumped[2]).sum(
            axis=1
        )
        gaps[:, j - 1] = moved / np.maximum(stay + moved, TINY)
        backward = np.stack([seen[0] + h * jumped[1], seen[1] + 2.0 * h * jumped[2], seen[2] + h * jumped[2]])
        backward /= np.maximum(backward.max(axis=(0, 2)), TINY)[:, None]
    return _Chain(log_evidence, gaps, means, variances)
