"""Compare interleaved launches of two builds on one worker: base, head, head, base, ... (ABBA).

Each pair shares its minute and its machine, so what drifts between pairs cancels in d = log(head) - log(base). The
order inside a pair does not cancel (the second launch finds a warmer GPU): it is estimated from the two orders and
taken out, d = effect + order * (head first: -1, head second: +1), by least squares, from ten pairs on.

Two methods share the error as in `perfdb.stats.effect`: Student's t on what is left, and the exact signed rank
(Wilcoxon 1945; Walsh averages for the interval). Assumption: pairs are independent. It fails where one launch heats
the next pair too; then the order effect is not constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from perfdb.stats.comparison import nothing_to_compare
from perfdb.stats.decision import Finding, decide
from perfdb.stats.effect import RANK_LAUNCHES, Effect, t_p_value
from perfdb.stats.launches import Launches, read_side, tick
from perfdb.stats.noise import Noise, as_noise
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.ranks import Floats, signed_rank_limits, signed_rank_p
from perfdb.stats.units import Family, family
from perfdb.stats.verdict import Outcome, Verdict

ORDER_PAIRS = 10
"""Fewest pairs for estimating the order effect. With fewer it fits two launch modes by chance (2 % false verdicts at
five pairs, measured); balanced orders cancel in the mean anyway, and the effect then counts as noise."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Mean difference with the order effect taken out; `centred` are the differences less that effect."""

    estimate: float
    centred: Floats
    error: float
    degrees: float
    spread: float


def compare_paired(
    base: Launches,
    head: Launches,
    *,
    head_first: Sequence[bool] | None = None,
    metric: Metric = Metric(),  # noqa: B008  # frozen value, the documented default
    policy: Policy = Policy(),  # noqa: B008  # frozen value, the documented default
    noise: Noise | float | None = None,
) -> Verdict:
    """Decide from pairs: launch k of base and launch k of head ran one after the other on one worker.

    head_first: for each pair whether head ran first; None alternates, as ABBA does (base first in the first pair).
    noise: scatter of the series; it lets fewer than `policy.min_launches` pairs decide. `launches_needed` counts pairs.

    Raises what `compare` raises, and ValueError where the sides differ in length. A pair of which one side failed is
    to be left out by the caller together with one pair of the opposite order.
    """
    left = read_side("base", base, metric=metric)
    right = read_side("head", head, metric=metric)
    if left.launches != right.launches:
        raise ValueError(f"pairs: {left.launches} launches of base, {right.launches} of head")
    problem = nothing_to_compare(left, right, metric)
    if problem is not None:
        return Verdict(
            Outcome.INVALID, (f"invalid: {problem}.",), left.launches, right.launches, unit=metric.unit
        )
    pairs = left.launches
    first = [bool(k % 2) for k in range(pairs)] if head_first is None else [bool(flag) for flag in head_first]
    if len(first) != pairs:
        raise ValueError(f"pairs: {len(first)} orders for {pairs} pairs")
    logarithmic = bool(left.values.min() > 0.0 and right.values.min() > 0.0)
    x, y = (np.log(left.values), np.log(right.values)) if logarithmic else (left.values, right.values)
    base_value = float(np.median(left.values))
    resolution = tick(left, right) if family(metric.unit) is Family.TIME else 0.0
    floor = resolution / np.sqrt(6.0) / (base_value if logarithmic else 1.0)
    known = as_noise(noise) if logarithmic else None
    effect, estimate = _measure(y - x, np.where(first, -1.0, 1.0), known, policy, float(floor))
    return decide(
        Finding(
            estimate=estimate,
            effect=effect,
            logarithmic=logarithmic,
            base_value=base_value,
            head_value=float(np.median(right.values)),
            n_base=pairs,
            n_head=pairs,
            method="pairs" if effect else "none",
            absolute_floor=resolution if policy.absolute_floor is None else policy.absolute_floor,
            noise=known,
            what="pairs",
        ),
        metric=metric,
        policy=policy,
    )


def _measure(
    differences: Floats, order: Floats, noise: Noise | None, policy: Policy, floor: float
) -> tuple[Effect | None, float]:
    fit = _fit(differences, order, noise, floor)
    if fit is None:
        return None, float(differences.mean())
    pairs = len(differences)
    ranked = pairs >= RANK_LAUNCHES
    wanted = 1.0 - (1.0 - policy.confidence) / 2.0 if ranked else policy.confidence
    half = float(stdtrit(fit.degrees, 0.5 + wanted / 2.0)) * fit.error
    estimate, low, high = fit.estimate, fit.estimate - half, fit.estimate + half
    p_value = float(t_p_value(np.asarray(estimate), np.asarray(fit.error), np.asarray(fit.degrees)))
    by_rank = False
    if ranked:
        p_value = min(1.0, 2.0 * min(p_value, signed_rank_p(fit.centred)))
        limits = signed_rank_limits(pairs, wanted)
        if limits is not None:
            upper = np.triu_indices(pairs)
            walsh = np.sort((fit.centred[upper[0]] + fit.centred[upper[1]]) / 2.0)
            below, above = float(walsh[limits.lower]) - floor, float(walsh[limits.upper]) + floor
            shown_by_t, shown_by_rank = low > 0.0 or high < 0.0, below > 0.0 or above < 0.0
            by_rank = above - below < high - low if shown_by_t == shown_by_rank else shown_by_rank
            if by_rank:
                estimate, low, high = float(np.median(walsh)), below, above
    effect = Effect(
        estimate=np.asarray(estimate),
        low=np.asarray(low),
        high=np.asarray(high),
        p_value=np.asarray(p_value),
        error=np.asarray(fit.error),
        degrees=np.asarray(fit.degrees),
        spread=np.asarray(fit.spread),
        by_rank=np.asarray(by_rank),
    )
    return effect, estimate


def _fit(differences: Floats, order: Floats, noise: Noise | None, floor: float) -> _Fit | None:
    """Least squares of d on 1 and the order; the order is left out where all pairs have the same one."""
    pairs = len(differences)
    use_order = pairs >= ORDER_PAIRS and bool(order.min() < order.max())
    design = np.column_stack([np.ones(pairs), order]) if use_order else np.ones((pairs, 1))
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ (design.T @ differences)
    residuals = differences - design @ coefficients
    own_degrees = pairs - design.shape[1]
    own = float(residuals @ residuals)
    if noise is not None:
        # A pair's difference has twice the variance of a launch; drift that pairs cancel makes that an upper bound.
        degrees = noise.degrees + own_degrees
        variance = (noise.degrees * 2.0 * noise.between_launches**2 + own) / degrees
        fixed = 2.0 * noise.between_commits**2
    elif own_degrees >= 1:
        degrees, variance, fixed = float(own_degrees), own / own_degrees, 0.0
    else:
        return None
    error = float(np.sqrt(variance * inverse[0, 0] + fixed + floor**2))
    centred = differences - (_robust_order(differences, order) * order if use_order else 0.0)
    return _Fit(float(coefficients[0]), centred, error, degrees, float(np.sqrt(variance)))


def _robust_order(differences: Floats, order: Floats) -> float:
    """Order effect for the rank method: half the Hodges-Lehmann shift between both orders, blind to a bad launch."""
    return float(np.median(differences[order > 0][:, None] - differences[order < 0][None, :])) / 2.0
