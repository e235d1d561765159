"""A step in a history too short for the level path, whose price of a jump grows as the history shrinks.

Only what hardly anything else explains is called: launches of the two sides hardly overlap (probability of
superiority, Mann & Whitney 1947), commits neither, the gap of the medians is several times the scatter of commits
about their side, a step fits better than a line (Theil-Sen), and `compare` calls the two sides different. Assumption:
most of either side is undisturbed. It fails to see small steps, and it takes a disturbance of the machine that outlasts
two commits (five where it is no larger than a throttled clock) for a step; the bisection, which measures both sides
again, then says "could not reproduce".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, theilslopes

from perfdb.stats.changes import Change, ChangeKind
from perfdb.stats.comparison import compare
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.ranks import Floats

SHORT = 32
"""Commits measured, below which this is asked."""
LEAST_BEFORE, LEAST_LAUNCHES = 3, 4
SMALLEST, LARGE = 0.04, 0.18
LEAST_AFTER_LARGE, LEAST_AFTER = 2, 5
"""Log scale. A throttled machine loses 5 to 15 % for a few commits: a step that small waits longer."""
SUPERIORITY = 0.90
Z_LIMIT = 3.5
"""Standard deviations of the rank sum: 5e-4 two-sided. Few launches cannot reach it and decide nothing here."""
GAP_IN_SCATTERS = 3.5
STEP_OVER_LINE = 0.8


@dataclass(frozen=True, slots=True)
class Split:
    """`at`: first commit (among those given) of the new side. before, after: medians of the launch values."""

    at: int
    before: float
    after: float
    superiority: float


def short_step(commits: Sequence[Floats]) -> Split | None:
    """The one clear step of a few commits' launch values (log scale, oldest first), None where there is none."""
    n = len(commits)
    if n < LEAST_BEFORE + LEAST_AFTER_LARGE or n >= SHORT:
        return None
    values = np.concatenate(commits)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in commits])])
    medians = np.array([np.median(row) for row in commits])
    ranks, commit_ranks = rankdata(values), rankdata(medians)
    best: Split | None = None
    for at in range(LEAST_BEFORE, n - LEAST_AFTER_LARGE + 1):
        cut = int(starts[at])
        superiority = _superiority(ranks, cut)
        if best is not None and abs(superiority - 0.5) <= abs(best.superiority - 0.5):
            continue
        if min(cut, len(values) - cut) < LEAST_LAUNCHES or not _clear(ranks, cut, superiority):
            continue
        if abs(_superiority(commit_ranks, at) - 0.5) < SUPERIORITY - 0.5 or not _is_step(medians, at):
            continue
        best = Split(at, float(np.median(values[:cut])), float(np.median(values[cut:])), superiority)
    return best


def _superiority(ranks: Floats, cut: int) -> float:
    """P(a value after the cut is larger than one before it)."""
    after = len(ranks) - cut
    return float((ranks[cut:].sum() - after * (after + 1) / 2) / (cut * after))


def _clear(ranks: Floats, cut: int, superiority: float) -> bool:
    """Hardly any overlap, and more than chance (normal approximation of the rank sum, two-sided)."""
    if abs(superiority - 0.5) < SUPERIORITY - 0.5:
        return False
    before, after = cut, len(ranks) - cut
    deviation = np.sqrt((before + after + 1) / (12.0 * before * after))
    return bool(abs(superiority - 0.5) >= Z_LIMIT * deviation)


def _is_step(medians: Floats, at: int) -> bool:
    left, right = medians[:at], medians[at:]
    gap = abs(float(np.median(right) - np.median(left)))
    residual = np.concatenate([left - np.median(left), right - np.median(right)])
    # The MAD about fitted medians is small by the two degrees of freedom that they took.
    scatter = 1.4826 * float(np.median(np.abs(residual))) * np.sqrt(len(residual) / max(1, len(residual) - 2))
    if gap < max(SMALLEST, GAP_IN_SCATTERS * scatter) or len(right) < (
        LEAST_AFTER_LARGE if gap >= LARGE else LEAST_AFTER
    ):
        return False
    x = np.arange(len(medians), dtype=np.float64)
    slope, height, _, _ = theilslopes(medians, x)
    line = medians - (height + slope * x)
    return float(np.abs(residual).sum()) < STEP_OVER_LINE * float(np.abs(line).sum())


def short_change(
    history: Sequence[Sequence[float] | None], *, metric: Metric, policy: Policy
) -> Change | None:
    """The clear step of a short history as `find_changes` gives it.

    history: one entry per commit, oldest first: positive launch values in the metric's unit, None (or empty) for a gap.
    None where there is no clear step, the history is not short, or a value is not positive.
    """
    index = [i for i, row in enumerate(history) if row]
    rows = [np.asarray(history[i], dtype=np.float64) for i in index]
    if any(row.min() <= 0.0 for row in rows):
        return None
    split = short_step([np.log(row) for row in rows])
    if split is None:
        return None
    left, right = rows[: split.at], rows[split.at :]
    base, head = ([[float(x)] for row in side for x in row] for side in (left, right))
    verdict = compare(base, head, metric=metric, policy=policy)
    if not verdict.outcome.is_change:
        return None
    return Change(
        index=index[split.at],
        earliest=index[split.at - 1] + 1,
        latest=index[split.at],
        ratio=verdict.ratio,
        low=verdict.low,
        high=verdict.high,
        kind=ChangeKind.STEP,
        confidence=max(split.superiority, 1.0 - split.superiority),
        before=float(np.exp(split.before)),
        after=float(np.exp(split.after)),
    )
