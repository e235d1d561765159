"""What one launch says: its value on the log scale, its local spread, and the noise of a launch and of a commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from scipy.ndimage import median_filter

from perfdb.stats.detect.counters import is_counter
from perfdb.stats.detect.history import Floats, History, Ints
from perfdb.stats.detect.robust import median, sigma_about_zero
from perfdb.stats.policy import Metric, Statistic

_ORDER_STATISTICS = 9  # a launch of more samples is reduced to this many averages of its ordered samples
_TRIMMED = 0.1  # of such a launch at each end: a tail that moves alone is no change of the median
_SCALE_COMMITS = 10  # running median of the spread, commits on each side; twice that without launches


@dataclass(frozen=True)
class Observations:
    """A history on the scale of analysis: natural log, or the metric's unit where a value is not positive.

    value, weight, commit: per launch. scale (local noise over typical noise), centre, spread: per commit.
    sigma: noise of a launch. commit_sigma: noise of a commit's centre; both for scale 1.
    is_log: whether differences are log ratios.
    """

    index: Ints
    start: Ints
    commit: Ints
    value: Floats
    weight: Floats
    centre: Floats
    scale: Floats
    spread: Floats
    sigma: float
    commit_sigma: float
    is_log: bool

    @property
    def n(self) -> int:
        return len(self.start) - 1


def observe(
    history: History, metric: Metric, *, weight: Floats | None = None, machine: Floats | None = None
) -> Observations:
    """weight: of each launch, in (0, 1], from its health; None means all one. A counter has sigma 0.

    machine: log level of the machine at each measured commit, taken off unless the series is a counter.
    """
    rows = int(history.start[-1])
    weights = np.ones(rows) if weight is None else weight
    if metric.deterministic:
        return _counter(history, weights)
    if is_counter(commit_medians(history)):
        return _counter(history, weights)
    is_log = all(float(block.min()) > 0.0 for _, block in history.blocks)
    commit = history.commit
    if is_log and machine is not None:
        history = replace(
            history, blocks=tuple((r, b * np.exp(-machine[commit[r]])[:, None]) for r, b in history.blocks)
        )
    blocks = tuple((where, np.log(block) if is_log else block) for where, block in history.blocks)
    deviation = np.zeros(rows)
    for where, block in blocks:
        deviation[where] = np.abs(block - _middle(block)[:, None]).mean(axis=1)
    if metric.statistic is Statistic.MEDIAN:
        value = _efficient_values(blocks, deviation, commit, rows)
    else:
        value = np.zeros(rows)
        for (where, _), (_, raw) in zip(blocks, history.blocks, strict=True):
            found = _statistic(raw, metric.statistic)
            value[where] = np.log(found) if is_log else found
    centre = _medians(value, history.start)
    spread = _spread(deviation, history.start, centre)
    scale = local_scale(spread, sampled=bool(np.any(deviation > 0.0)))
    plain = Observations(
        index=history.index, start=history.start, commit=commit, value=value, weight=weights, centre=centre,
        scale=scale, spread=spread, sigma=0.0, commit_sigma=0.0, is_log=is_log,
    )  # fmt: skip
    return _with_noise(plain)


def _middle(ordered: Floats) -> Floats:
    """Median of each row of samples in ascending order."""
    size = ordered.shape[1]
    return np.asarray(0.5 * (ordered[:, (size - 1) // 2] + ordered[:, size // 2]))


def _launch_medians(history: History) -> Floats:
    value = np.zeros(int(history.start[-1]))
    for rows, block in history.blocks:
        value[rows] = _middle(block)
    return value


def commit_medians(history: History) -> Floats:
    """Median of launch medians, per commit, in the metric's unit."""
    return np.asarray(_medians(_launch_medians(history), history.start))


def _counter(history: History, weight: Floats) -> Observations:
    """In the metric's unit, not its logarithm: exact values stay exact."""
    value = _launch_medians(history)
    centre = _medians(value, history.start)
    return Observations(
        index=history.index, start=history.start, commit=history.commit, value=value, weight=weight, centre=centre,
        scale=np.ones(len(centre)), spread=np.zeros(len(centre)), sigma=0.0, commit_sigma=0.0, is_log=False,
    )  # fmt: skip


def _statistic(raw: Floats, statistic: Statistic) -> Floats:
    if statistic is Statistic.MIN:
        return raw[:, 0]
    if statistic is Statistic.MAX:
        return raw[:, -1]
    if statistic.quantile is not None:
        return np.asarray(np.quantile(raw, statistic.quantile, axis=1, method="higher"))
    return np.asarray(raw.mean(axis=1))


def _efficient_values(
    blocks: tuple[tuple[Ints, Floats], ...], deviation: Floats, commit: Ints, rows: int
) -> Floats:
    """v = sum_k w_k x_(k) with the weights that vary least between launches of one commit.

    w = C^-1 1 / (1' C^-1 1) over the order statistics (Lloyd 1952, best linear estimator of location), kept
    non-negative by an active set; C from differences of the ordered samples of neighbouring launches of a commit.
    """
    count = min(_ORDER_STATISTICS, _common_size(blocks, rows))
    ordered = np.zeros((rows, count))
    for where, block in blocks:
        ordered[where] = _reduce(block, count)
    if count < 3:
        return np.asarray(ordered.mean(axis=1))
    pairs = np.flatnonzero(commit[1:] == commit[:-1])
    if len(pairs) < 10 * count:
        return _middle(ordered)
    covariance = _difference_covariance(ordered, deviation, pairs)
    if not np.trace(covariance) > 0.0:
        return _middle(ordered)
    return np.asarray(ordered @ _least_variance(covariance))


def _common_size(blocks: tuple[tuple[Ints, Floats], ...], rows: int) -> int:
    """Samples that nine launches in ten have. Blocks are in ascending order of their launches' size."""
    smaller = 0
    for where, block in blocks:
        smaller += len(where)
        if smaller > 0.1 * rows:
            return int(block.shape[1])
    return 1


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _difference_covariance(ordered: Floats, deviation: Floats, pairs: Ints) -> Floats:
    """Second moments of ordered[i + 1] - ordered[i] over the local spread, clipped at 3 MAD, with a ridge of 2 %."""
    count = ordered.shape[1]
    difference = np.zeros((len(pairs), count))
    for p, i in enumerate(pairs):
        spread = 0.5 * (deviation[i] + deviation[i + 1])
        if spread > 0.0:
            for k in range(count):
                difference[p, k] = (ordered[i + 1, k] - ordered[i, k]) / spread
    limit = 3.0 * sigma_about_zero(difference.ravel())
    covariance = np.zeros((count, count))
    for p in range(len(pairs)):
        for k in range(count):
            for j in range(k + 1):
                one = min(max(difference[p, k], -limit), limit)
                two = min(max(difference[p, j], -limit), limit)
                covariance[k, j] += one * two
    trace = 0.0
    for k in range(count):
        trace += covariance[k, k]
        for j in range(k):
            covariance[j, k] = covariance[k, j]
    for k in range(count):
        covariance[k, k] += 0.02 * trace / count
    return covariance


def _least_variance(covariance: Floats) -> Floats:
    active = np.arange(len(covariance))
    while True:
        part = np.linalg.solve(covariance[np.ix_(active, active)], np.ones(len(active)))
        if (part > 0.0).all():
            weights = np.zeros(len(covariance))
            weights[active] = part / part.sum()
            return weights
        active = active[part > 0.0]


def _reduce(block: Floats, count: int) -> Floats:
    """Ordered samples of shape (rows, S) -> (rows, count): as they are, averaged in groups, or interpolated."""
    size = block.shape[1]
    if size == count:
        return block
    if size > count:
        trimmed = min(int(_TRIMMED * size), (size - count) // 2)
        edges = np.linspace(trimmed, size - trimmed, count + 1).round().astype(np.int64)
        sums = np.add.reduceat(block[:, : edges[-1]], edges[:-1], axis=1)
        return np.asarray(sums / np.diff(edges))
    at = (np.arange(count) + 0.5) / count * size - 0.5
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, size - 1)
    return np.asarray(block[:, low] + (at - low) * (block[:, high] - block[:, low]))


def _spread(deviation: Floats, start: Ints, centre: Floats) -> Floats:
    """log of the mean absolute deviation inside the launches of a commit; without samples, of the step to the next."""
    if np.any(deviation > 0.0):
        plain = np.add.reduceat(deviation, start[:-1]) / (start[1:] - start[:-1])
    else:
        plain = np.abs(np.diff(centre, append=centre[-1:]))
        if len(plain) > 1:
            plain[-1] = plain[-2]
    positive = plain[plain > 0.0]
    floor = 1e-3 * median(positive) if len(positive) else 1.0
    return np.asarray(np.log(np.maximum(plain, floor)))


def local_scale(spread: Floats, *, sampled: bool) -> Floats:
    """s_t = exp(k (m_t - med m)), m_t the running median of the log spread, k the share of its variance not noise.

    k = max(0, 1 - 3 nu / var m) with nu = 1.57 MAD^2 / window, the variance of a running median of pure noise.
    """
    n = len(spread)
    window = 2 * (_SCALE_COMMITS if sampled else 2 * _SCALE_COMMITS) + 1
    if n < window:
        return np.ones(n)
    running = median_filter(spread, size=window, mode="reflect")
    rough = spread - running
    noise = sigma_about_zero(rough - median(rough))
    variance = float(np.var(running))
    if variance <= 0.0:
        return np.ones(n)
    keep = max(0.0, 1.0 - 3.0 * 1.57 * noise**2 / window / variance)
    return np.asarray(np.exp(keep * (running - median(running))))


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _medians(value: Floats, start: Ints) -> Floats:
    centre = np.empty(len(start) - 1)
    for t in range(len(centre)):
        centre[t] = np.median(value[start[t] : start[t + 1]])
    return centre


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _centres(
    value: Floats, start: Ints, median: Floats, scale: Floats, weight: Floats, sigma: float
) -> Floats:
    """One reweighted step (Student t4) from the median of the launches of each commit."""
    centre = np.empty(len(start) - 1)
    for t in range(len(centre)):
        total = 0.0
        mass = 0.0
        for i in range(start[t], start[t + 1]):
            u = (value[i] - median[t]) / (sigma * scale[t])
            share = (weight[i] + 1e-9) / (4.0 + u * u)
            total += share * value[i]
            mass += share
        centre[t] = total / mass
    return centre


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _launch_differences(value: Floats, start: Ints, scale: Floats) -> tuple[Floats, Floats]:
    """Absolute differences over the local scale: of launches of neighbouring commits, and inside a commit."""
    n = len(start) - 1
    across_size = 0
    inside_size = 0
    for t in range(n):
        here = start[t + 1] - start[t]
        inside_size += here * (here - 1) // 2
        if t:
            across_size += here * (start[t] - start[t - 1])
    across = np.empty(across_size)
    inside = np.empty(inside_size)
    a = 0
    b = 0
    for t in range(n):
        for i in range(start[t], start[t + 1]):
            for k in range(i + 1, start[t + 1]):
                inside[b] = abs(value[i] - value[k]) / scale[t]
                b += 1
            if t:
                both = np.sqrt(0.5 * (scale[t] ** 2 + scale[t - 1] ** 2))
                for k in range(start[t - 1], start[t]):
                    across[a] = abs(value[i] - value[k]) / both
                    a += 1
    return across, inside


def _with_noise(observations: Observations) -> Observations:
    """Noise from differences (a step touches one of them): MAD / sqrt 2, of launches and of commit centres.

    Launches of one commit that agree more with each other than with the next commit's share a noise of the commit;
    each then counts 1 / (1 + (L - 1) rho), the design effect (Kish 1965).
    """
    scale = observations.scale
    across, inside = _launch_differences(observations.value, observations.start, scale)
    sigma = sigma_about_zero(across) / np.sqrt(2.0) if len(across) else 0.0
    centre = observations.centre
    if sigma > 0.0:
        centre = _centres(observations.value, observations.start, centre, scale, observations.weight, sigma)
    between = np.abs(np.diff(centre)) / np.sqrt(0.5 * (scale[1:] ** 2 + scale[:-1] ** 2))
    commit_sigma = sigma_about_zero(between) / np.sqrt(2.0) if len(between) else 0.0
    weight = observations.weight
    if len(inside) >= 10 and sigma > 0.0:
        within = sigma_about_zero(inside) / np.sqrt(2.0)
        doubt = 2.0 / np.sqrt(len(observations.centre))
        shared = max(0.0, 1.0 - (within / sigma) ** 2 - doubt)
        launches = np.diff(observations.start)[observations.commit]
        weight = weight / (1.0 + (launches - 1.0) * shared)
    return replace(
        observations,
        centre=centre,
        weight=weight,
        sigma=sigma,
        commit_sigma=min(sigma, commit_sigma) or sigma,
    )
