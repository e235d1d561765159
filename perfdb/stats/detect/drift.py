"""Slow drift beside steps: a smooth curve, fitted together with the jumps, is taken off and the path redrawn."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from perfdb.stats.detect.density import Density
from perfdb.stats.detect.history import Floats, Ints
from perfdb.stats.detect.launches import Observations
from perfdb.stats.detect.path import LevelPath, find_path
from perfdb.stats.detect.robust import sigma_about_zero

FROM_COMMITS = 24
WAVELENGTHS = (60.0, 120.0, 240.0)
_ROUNDS = 4
_RULED_OUT_NATS = 10.0
_HOPELESS_NATS = 15.0  # further rounds have never been seen to save more
_HOPELESS_BY_SQUARES_NATS = 22.0  # and the first path no more than some of that


@dataclass(frozen=True)
class Drifted:
    """A level path and the drift (per commit, None for none) it was drawn under. total: nats, with all prices.

    ruled_out: jumps beside which every drift was far from paying, None where one came near.
    """

    path: LevelPath
    drift: Floats | None
    total: float
    ruled_out: Ints | None = None


def price(n: int, wavelength: float) -> float:
    """What a drift of this shortest wavelength costs in nats: 3.5 for each of its about 2 + 2.2 n / W freedoms."""
    return 3.5 * (2.0 + 2.2 * n / wavelength)


def with_drift(
    observations: Observations,
    density: Density,
    plain: LevelPath,
    penalty: float,
    *,
    ruled_out: Ints | None = None,
) -> Drifted:
    """The cheapest of no drift and a drift at each wavelength; without a jump there is nothing to explain away.

    ruled_out: of a call some commits ago; beside the same jumps drift is not tried again.
    """
    best = Drifted(path=plain, drift=None, total=plain.cost, ruled_out=ruled_out)
    if observations.n < FROM_COMMITS or not len(plain.jumps):
        return best
    if ruled_out is not None and _are_near(plain.jumps, ruled_out):
        return best
    best = replace(best, ruled_out=None)
    nearest = np.inf
    for wavelength in WAVELENGTHS:
        extra = price(observations.n, wavelength)
        if extra >= best.total:
            continue
        found = _at_wavelength(observations, density, plain, penalty, wavelength, best.total - extra)
        nearest = min(nearest, found.total + extra - plain.cost)
        if found.total + extra < best.total:
            best = Drifted(path=found.path, drift=found.drift, total=found.total + extra)
    return replace(best, ruled_out=plain.jumps) if nearest > _RULED_OUT_NATS else best


def _are_near(one: Ints, two: Ints) -> bool:
    return len(one) == len(two) and bool((np.abs(one - two) <= 2).all())


def _at_wavelength(
    observations: Observations,
    density: Density,
    plain: LevelPath,
    penalty: float,
    wavelength: float,
    to_beat: float,
) -> Drifted:
    """From two starts, since each alone gets stuck: all jumps of the plain path beside the drift, and none of them.

    A start that is far from `to_beat` nats after its first path, or by least squares before it, is given up.
    """
    lam = (wavelength / (2.0 * np.pi)) ** 4
    centre, scale, least = observations.centre, observations.scale, 1e-3 * observations.commit_sigma
    best = Drifted(path=plain, drift=None, total=np.inf)
    misfit = centre - plain.per_commit()
    by_squares = _cost_by_squares(centre, misfit, scale, plain.bounds, least, penalty)
    for jumps in (plain.jumps, plain.jumps[:0]):
        path, drift = plain, np.zeros(observations.n)
        for around in range(_ROUNDS):
            residual = centre - drift - path.per_commit()
            drift = _fit(centre, residual, scale, jumps, lam, least, penalty)
            if around == 0:
                likely = _cost_by_squares(centre - drift, residual, scale, plain.bounds, least, penalty)
                if likely - by_squares > to_beat - plain.cost + _HOPELESS_BY_SQUARES_NATS:
                    break
            path = find_path(observations, density, penalty=penalty, drift=drift)
            if path.cost < best.total:
                best = Drifted(path=path, drift=drift, total=path.cost)
            if path.cost > to_beat + _HOPELESS_NATS or np.array_equal(path.jumps, jumps):
                break
            jumps = path.jumps
    return best


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _cost_by_squares(
    x: Floats, residual: Floats, scale: Floats, bounds: Ints, least_sigma: float, penalty: float
) -> float:
    """What a path with the jumps of `bounds`, less those not worth their price, would cost: weighted squares / 2."""
    sigma = max(sigma_about_zero(residual / scale), least_sigma)
    weight = 5.0 / (4.0 + (residual / scale / sigma) ** 2) / scale**2
    k = len(bounds) - 1
    mass = np.zeros(k)
    first = np.zeros(k)
    rest = 0.0
    middle = np.mean(x)
    for j in range(k):
        second = 0.0
        for t in range(bounds[j], bounds[j + 1]):
            mass[j] += weight[t]
            first[j] += weight[t] * (x[t] - middle)
            second += weight[t] * (x[t] - middle) ** 2
        rest += second - first[j] ** 2 / mass[j]
    price = 2.0 * penalty * sigma**2
    while k > 1:
        cheapest = 0
        least = np.inf
        for j in range(k - 1):
            gap = first[j] / mass[j] - first[j + 1] / mass[j + 1]
            cost = gap**2 * mass[j] * mass[j + 1] / (mass[j] + mass[j + 1])
            if cost < least:
                least = cost
                cheapest = j
        if least >= price:
            break
        rest += least
        mass[cheapest] += mass[cheapest + 1]
        first[cheapest] += first[cheapest + 1]
        for j in range(cheapest + 1, k - 1):
            mass[j] = mass[j + 1]
            first[j] = first[j + 1]
        k -= 1
    return rest / sigma**2 / 2.0 + penalty * (k - 1)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _fit(
    x: Floats, residual: Floats, scale: Floats, jumps: Ints, lam: float, least_sigma: float, penalty: float
) -> Floats:
    """f of  min sum w (x - Z delta - f)^2 + lam |D2 f|^2,  weakest jumps dropped while z^2 / 2 < penalty.

    Partially linear smoothing spline in its discrete (Whittaker-Henderson) form: f = S (x - Z delta) with
    S = (W + lam D2' D2)^-1 W, delta from Z' W (I - S) Z. A jump is dropped by a downdate of the inverse, so the
    banded matrix is factored once. The weights are those of a Student t4 at the residuals of the path before.
    """
    sigma = max(sigma_about_zero(residual / scale), least_sigma)
    weight = 5.0 / (4.0 + (residual / scale / sigma) ** 2) / scale**2
    diagonal, first, second = _factor(weight, lam)
    smooth = _solve(diagonal, first, second, weight * x)
    shapes = np.zeros((len(jumps), len(x)))
    for j, at in enumerate(jumps):
        column = np.zeros(len(x))
        column[at:] = weight[at:]
        shapes[j] = _solve(diagonal, first, second, column)
    normal = np.zeros((len(jumps), len(jumps)))
    for j, at in enumerate(jumps):
        rest = -weight * shapes[j]
        rest[at:] += weight[at:]
        normal[:, j] = _sums_from(rest, jumps)
        normal[j, j] += 1e-9
    delta = _worthwhile(normal, _sums_from(weight * (x - smooth), jumps), 2.0 * penalty * sigma**2)
    for j in range(len(jumps)):
        smooth -= delta[j] * shapes[j]
    return smooth - np.mean(smooth)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sums_from(x: Floats, jumps: Ints) -> Floats:
    """Sum of x from each jump to the end."""
    sums = np.zeros(len(jumps))
    total = 0.0
    end = len(x)
    for j in range(len(jumps) - 1, -1, -1):
        total += np.sum(x[jumps[j] : end])
        end = jumps[j]
        sums[j] = total
    return sums


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _worthwhile(normal: Floats, right: Floats, price: float) -> Floats:
    """Solution of the normal equations with those unknowns at 0 that would save less than `price` squares."""
    k = len(right)
    inverse = normal.copy()
    if k:
        inverse[:] = np.linalg.inv(normal)
    delta = np.zeros(k)
    for j in range(k):
        for i in range(k):
            delta[j] += inverse[j, i] * right[i]
    kept = np.ones(k, dtype=np.bool_)
    while kept.any():
        weakest = -1
        least = np.inf
        for j in range(k):
            if kept[j] and delta[j] ** 2 / max(inverse[j, j], 1e-300) < least:
                least = delta[j] ** 2 / max(inverse[j, j], 1e-300)
                weakest = j
        if least >= price:
            break
        kept[weakest] = False
        column = inverse[:, weakest].copy()
        pivot = inverse[weakest, weakest]
        delta -= column * (delta[weakest] / pivot)
        inverse -= np.outer(column, column) / pivot
        delta[weakest] = 0.0
    return delta


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _factor(weight: Floats, lam: float) -> tuple[Floats, Floats, Floats]:
    """L D L' of the pentadiagonal matrix diag(weight) + lam D2' D2: D, first and second subdiagonal of L."""
    n = len(weight)
    main = weight.copy()
    off1 = np.zeros(n)
    off2 = np.zeros(n)
    for t in range(n - 2):
        main[t] += lam
        main[t + 1] += 4.0 * lam
        main[t + 2] += lam
        off1[t] -= 2.0 * lam
        off1[t + 1] -= 2.0 * lam
        off2[t] += lam
    diagonal = np.empty(n)
    first = np.zeros(n)
    second = np.zeros(n)
    for t in range(n):
        diagonal[t] = main[t]
        if t >= 1:
            diagonal[t] -= first[t - 1] ** 2 * diagonal[t - 1]
        if t >= 2:
            diagonal[t] -= second[t - 2] ** 2 * diagonal[t - 2]
        carry = first[t - 1] * second[t - 1] * diagonal[t - 1] if t >= 1 else 0.0
        first[t] = (off1[t] - carry) / diagonal[t]
        second[t] = off2[t] / diagonal[t]
    return diagonal, first, second


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _solve(diagonal: Floats, first: Floats, second: Floats, right: Floats) -> Floats:
    n = len(right)
    x = right.copy()
    for t in range(1, n):
        x[t] -= first[t - 1] * x[t - 1]
        if t >= 2:
            x[t] -= second[t - 2] * x[t - 2]
    for t in range(n - 1, -1, -1):
        x[t] /= diagonal[t]
        if t + 1 < n:
            x[t] -= first[t] * x[t + 1]
        if t + 2 < n:
            x[t] -= second[t] * x[t + 2]
    return x
