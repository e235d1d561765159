"""Compare two commits: launches of raw samples in, a verdict out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfdb.stats.decision import Finding, change_outcome, decide, percent
from perfdb.stats.effect import measure, measure_with_noise
from perfdb.stats.launches import Launches, Side, read_side, tick
from perfdb.stats.noise import Noise, as_noise
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.ranks import Floats, mann_whitney_p
from perfdb.stats.rates import Count, share_interval
from perfdb.stats.tails import TailBounds, requests_needed, tail_bounds
from perfdb.stats.units import Family, conversion, family
from perfdb.stats.verdict import Outcome, Verdict

TIMER_TICK_IN_SERIES = 1.0 / math.sqrt(12.0)
"""Standard deviation of a value rounded to one tick."""

_CLOCK_POWER: dict[Family | None, int] = {
    Family.TIME: 1,
    Family.RATE: -1,
    Family.BYTE_RATE: -1,
    Family.FLOP_RATE: -1,
}


@dataclass(frozen=True, slots=True)
class _Question:
    """How two sets of launch values are to be compared."""

    metric: Metric
    policy: Policy
    noise: Noise | None
    same_worker: bool
    resolution: float

    @property
    def absolute_floor(self) -> float:
        if self.policy.absolute_floor is not None:
            return self.policy.absolute_floor
        return self.resolution


def compare(
    base: Launches,
    head: Launches,
    *,
    metric: Metric = Metric(),  # noqa: B008  # frozen value, the documented default
    policy: Policy = Policy(),  # noqa: B008  # frozen value, the documented default
    noise: Noise | float | None = None,
    base_mhz: Sequence[float] | Floats | None = None,
    head_mhz: Sequence[float] | Floats | None = None,
    base_failures: Sequence[int] | None = None,
    head_failures: Sequence[int] | None = None,
    base_requests: Sequence[int] | None = None,
    head_requests: Sequence[int] | None = None,
    base_workers: Sequence[str] | None = None,
    head_workers: Sequence[str] | None = None,
    base_unit: str | None = None,
    head_unit: str | None = None,
) -> Verdict:
    """Decide whether head differs from base.

    base, head: launches (processes), each a sequence of raw samples; a bare number is a launch of one sample.
    noise: scatter of the series' history (`calibrate(history).noise`) or its relative deviation as a number.
    *_mhz: SM clock of each launch; a gap in time that is none in cycles is a clock effect, not a regression. Used for
        times and rates per second, no other metric moves with the clock.
    *_failures: failed requests of each launch; they rank as +infinity in a median or a percentile.
    *_requests: of a tail metric whose launches come as one value each, already the percentile: how many requests are
        behind each; without them whether they carry the claim is not checked.
    *_workers: worker of each launch; where no worker measured both sides, machines are compared too.
    *_unit: unit of the samples where it is not the metric's; converted inside a family.

    Raises InvalidSamplesError (a ValueError) with the position of an impossible sample, ValueError for units of
    different families and for per-launch lists of another length. A side without launches gives an `invalid` verdict.
    """
    left = read_side("base", base, metric=metric, scale=_scale(base_unit, metric), failures=base_failures)
    right = read_side("head", head, metric=metric, scale=_scale(head_unit, metric), failures=head_failures)
    problem = nothing_to_compare(left, right, metric)
    if problem is not None:
        return _invalid(problem, left, right, metric)
    same_worker = _same_worker(left, right, base_workers, head_workers)
    resolution = tick(left, right) if family(metric.unit) is Family.TIME else 0.0
    question = _Question(metric, policy, as_noise(noise), same_worker, resolution)
    verdict = _compare_values(left, right, question)
    turns = _CLOCK_POWER.get(family(metric.unit))
    if base_mhz is not None and head_mhz is not None and turns is not None:
        clocks = _clock_values("base", left, base_mhz, turns), _clock_values("head", right, head_mhz, turns)
        verdict = _with_clock(verdict, left, right, clocks, question)
    if not same_worker and (question.noise is None or question.noise.between_workers is None):
        verdict = _undecided(
            verdict, "no worker measured both sides, and how far these workers differ is unknown"
        )
    if metric.statistic.quantile is not None and _summarised(left) and _summarised(right):
        return _with_requests(verdict, base_requests, head_requests, question)
    return _with_tails(verdict, left, right, question)


def _compare_values(left: Side, right: Side, question: _Question) -> Verdict:
    # Sorted, so that sums round alike whatever the order of arrival.
    base, head = np.sort(left.values), np.sort(right.values)
    if question.metric.deterministic and _constant(left) and _constant(right):
        return _compare_exactly(float(base[0]), float(head[0]), left, right, question)
    if not (np.isfinite(base[-1]) and np.isfinite(head[-1])):
        return _compare_failures(base, head, left, right, question)
    verdict = decide(_find(base, head, question), metric=question.metric, policy=question.policy)
    if question.metric.deterministic:
        note = "declared deterministic, but its values differ within a side: compared like a noisy metric."
        return replace(verdict, reasons=(note, *verdict.reasons))
    return verdict


def _find(base: Floats, head: Floats, question: _Question) -> Finding:
    """Measure the effect: on logs where every value is positive, on plain values otherwise (zero has no log)."""
    logarithmic = bool(base[0] > 0.0 and head[0] > 0.0)
    base_value, head_value = float(np.median(base)), float(np.median(head))
    x, y = (np.log(base), np.log(head)) if logarithmic else (base, head)
    floor = math.sqrt(2.0) * TIMER_TICK_IN_SERIES * question.resolution / (base_value if logarithmic else 1.0)
    noise = question.noise if logarithmic else None
    confidence = question.policy.confidence
    effect = None
    if noise is not None:
        effect = measure_with_noise(
            x, y, noise=noise, confidence=confidence, same_worker=question.same_worker, error_floor=floor
        )
    elif min(len(x), len(y)) >= 2:
        effect = measure(x, y, confidence=confidence, error_floor=floor)
    method = "none" if effect is None else "rank" if effect.by_rank else "history" if noise else "t"
    return Finding(
        estimate=float(effect.estimate) if effect else float(y.mean() - x.mean()),
        effect=effect,
        logarithmic=logarithmic,
        base_value=base_value,
        head_value=head_value,
        n_base=len(base),
        n_head=len(head),
        method=method,
        absolute_floor=question.absolute_floor,
        noise=noise,
    )


def _compare_exactly(base: float, head: float, left: Side, right: Side, question: _Question) -> Verdict:
    """Declared deterministic and constant on both sides: any difference is a change, at one launch."""
    difference = head - base
    floor = question.policy.absolute_floor or 0.0
    changed = difference != 0.0 and abs(difference) >= floor
    outcome = change_outcome(difference, question.metric) if changed else Outcome.SAME
    ratio = head / base if base else (1.0 if head == 0.0 else None)
    floor_note = f", under the absolute floor of {floor:g}" if difference and not changed else ""
    reason = f"exact: declared deterministic, {base:g} -> {head:g} {question.metric.unit}{floor_note}."
    return Verdict(
        outcome=outcome,
        reasons=(reason, f"{outcome.value}: {percent(ratio)}."),
        n_base=left.launches,
        n_head=right.launches,
        ratio=ratio,
        low=ratio,
        high=ratio,
        minimum_detectable=0.0,
        base_value=base,
        head_value=head,
        difference=difference,
        unit=question.metric.unit,
        confidence=question.policy.confidence,
        method="exact",
    )


def _compare_failures(base: Floats, head: Floats, left: Side, right: Side, question: _Question) -> Verdict:
    """Some launch's statistic is a failed request: only ranks are left, there is no ratio."""
    policy = question.policy
    failed_base, failed_head = int(np.isinf(base).sum()), int(np.isinf(head).sum())
    largest = max((float(v) for v in (*base, *head) if math.isfinite(v)), default=1.0)
    ceiling = 2.0 * largest + 1.0
    p_value = float(mann_whitney_p(np.minimum(base, ceiling), np.minimum(head, ceiling)))
    enough = min(len(base), len(head)) >= policy.min_launches
    # A failure is no timing noise: every launch of one side and none of the other is a change at min_launches.
    clear = {failed_base, failed_head} == {0, len(head if failed_head else base)}
    decided = enough and failed_base != failed_head and (clear or p_value < policy.alpha)
    outcome = change_outcome(failed_head - failed_base, question.metric) if decided else Outcome.INCONCLUSIVE
    needed = None if decided or failed_base == failed_head else max(policy.min_launches, left.launches + 1)
    found = f"{failed_base} of {len(base)} base launches and {failed_head} of {len(head)} head launches"
    reasons = (
        f"failures: the {question.metric.statistic} is a failed request in {found}.",
        f"noise: rank p = {p_value:.2g}.",
        f"{outcome.value}: failures decide, there is no ratio.",
    )
    return Verdict(
        outcome=outcome,
        reasons=reasons,
        n_base=left.launches,
        n_head=right.launches,
        p_value=p_value,
        launches_needed=needed,
        base_value=left.typical,
        head_value=right.typical,
        unit=question.metric.unit,
        confidence=policy.confidence,
        method="rank",
    )


def _with_clock(
    verdict: Verdict, left: Side, right: Side, clocks: tuple[Floats, Floats], question: _Question
) -> Verdict:
    """Compare in cycles too. Time decides; cycles take a verdict away, or give one that clock noise hides."""
    unit = "cycles" if family(question.metric.unit) is Family.TIME else f"{question.metric.unit} per MHz"
    in_cycles = replace(question, metric=replace(question.metric, unit=unit), resolution=0.0)
    if question.policy.absolute_floor is not None:  # given in time: no measure for cycles
        in_cycles = replace(in_cycles, policy=replace(question.policy, absolute_floor=None))
    cycles = _compare_values(replace(left, values=clocks[0]), replace(right, values=clocks[1]), in_cycles)
    verdict = replace(verdict, cycles=cycles)
    agree = f"cycles: {percent(cycles.ratio)}, {cycles.outcome.value}."
    if verdict.outcome.is_change and cycles.outcome is not verdict.outcome:
        outcome = Outcome.INCONCLUSIVE if cycles.outcome.is_change else cycles.outcome
        note = f"clock effect: time moved by {percent(verdict.ratio)}, cycles by {percent(cycles.ratio)}: not code."
        return replace(
            verdict,
            outcome=outcome,
            clock_effect=True,
            launches_needed=cycles.launches_needed,
            reasons=(*verdict.reasons[:-1], agree, note),
        )
    hidden = verdict.outcome is Outcome.INCONCLUSIVE and cycles.outcome.is_change
    if hidden and verdict.rules is not None and verdict.rules.relative and _same_direction(verdict, cycles):
        note = f"{cycles.outcome.value}: shown in cycles, where the clock's own scatter is gone."
        reasons = (*verdict.reasons[:-1], agree, note)
        return replace(
            verdict, outcome=cycles.outcome, launches_needed=None, method="cycles", reasons=reasons
        )
    return replace(verdict, reasons=(*verdict.reasons, agree))


def _with_tails(verdict: Verdict, left: Side, right: Side, question: _Question) -> Verdict:
    """Attach the tail's own bounds; refuse a change or an equivalence that too few samples claim."""
    statistic = question.metric.statistic
    if statistic.quantile is None or question.metric.deterministic:
        return verdict
    base_tail, head_tail = (_tail(side, statistic.quantile, question.policy) for side in (left, right))
    verdict = replace(verdict, base_tail=base_tail, head_tail=head_tail)
    short = [(side.name, tail) for side, tail in ((left, base_tail), (right, head_tail)) if not tail.enough]
    if not short or (verdict.outcome.is_change and (_surely_failed(base_tail) or _surely_failed(head_tail))):
        return verdict
    name, tail = min(short, key=lambda pair: pair[1].requests)
    note = f"{tail.requests} samples of {name} are too few for a {statistic} claim: {tail.needed} are needed"
    verdict = _undecided(verdict, note)
    per_launch = max(1, min(left.fewest + min(left.failures), right.fewest + min(right.failures)))
    return replace(
        verdict, launches_needed=max(verdict.launches_needed or 0, math.ceil(tail.needed / per_launch))
    )


def _with_requests(
    verdict: Verdict, base: Sequence[int] | None, head: Sequence[int] | None, question: _Question
) -> Verdict:
    """Refuse a claim of percentiles, one for each launch, that too few requests are behind."""
    statistic = question.metric.statistic
    if base is None or head is None or statistic.quantile is None or question.metric.deterministic:
        return verdict
    needed = requests_needed(statistic.quantile, confidence=question.policy.confidence)
    name, total = min(("base", sum(base)), ("head", sum(head)), key=lambda pair: pair[1])
    if total >= needed:
        return verdict
    note = f"{total} requests of {name} are too few for a {statistic} claim: {needed} are needed"
    per_launch = max(1, total // max(1, min(len(base), len(head))))
    launches = max(verdict.launches_needed or 0, math.ceil(needed / per_launch))
    return replace(_undecided(verdict, note), launches_needed=launches)


def _summarised(side: Side) -> bool:
    """At most one value a launch: it is the launch's percentile already, no sample of requests."""
    return len(side.samples) <= side.launches


def _tail(side: Side, quantile: float, policy: Policy) -> TailBounds:
    return tail_bounds(side.samples, quantile, failures=sum(side.failures), confidence=policy.confidence)


def _surely_failed(tail: TailBounds) -> bool:
    """Few requests suffice to show a percentile that is a failure: the failed share is beyond the tail for sure."""
    return (
        share_interval(Count(tail.failures, tail.requests), confidence=tail.confidence)[0]
        > 1.0 - tail.quantile
    )


def _undecided(verdict: Verdict, why: str) -> Verdict:
    if verdict.outcome is Outcome.INVALID:
        return verdict
    return replace(
        verdict, outcome=Outcome.INCONCLUSIVE, reasons=(*verdict.reasons[:-1], f"inconclusive: {why}.")
    )


def nothing_to_compare(left: Side, right: Side, metric: Metric) -> str | None:
    empty = [side.name for side in (left, right) if not side.launches]
    if empty:
        return f"nothing was measured on {' and '.join(empty)}"
    timed = family(metric.unit) in (Family.TIME, Family.CYCLES) and not metric.deterministic
    if timed and left.values.min() > 0.0 and right.values.min() == 0.0:
        number = int(right.values.argmin()) + 1
        return (
            f"head launch {number} took no time at all (0 {metric.unit}): the work was not done or not timed"
        )
    return None


def _invalid(problem: str, left: Side, right: Side, metric: Metric) -> Verdict:
    return Verdict(
        outcome=Outcome.INVALID,
        reasons=(f"invalid: {problem}.",),
        n_base=left.launches,
        n_head=right.launches,
        base_value=left.typical,
        head_value=right.typical,
        unit=metric.unit,
    )


def _same_worker(
    left: Side, right: Side, base_workers: Sequence[str] | None, head_workers: Sequence[str] | None
) -> bool:
    if base_workers is None or head_workers is None:
        return True
    for side, workers in ((left, base_workers), (right, head_workers)):
        if len(workers) != side.launches:
            raise ValueError(f"{side.name}: {len(workers)} workers for {side.launches} launches")
    return bool(set(base_workers) & set(head_workers))


def _clock_values(name: str, side: Side, mhz: Sequence[float] | Floats, turns: int) -> Floats:
    """Values in cycles: a time times the clock, a rate per second over it."""
    clocks = np.asarray(mhz, dtype=np.float64)
    if clocks.shape != side.values.shape:
        raise ValueError(f"{name}: {clocks.size} clock readings for {side.launches} launches")
    wrong = np.flatnonzero(~(np.isfinite(clocks) & (clocks > 0.0)))
    if len(wrong):
        raise ValueError(f"{name} launch {wrong[0] + 1}: {clocks[wrong[0]]} MHz is no clock")
    return np.asarray(side.values * clocks**turns)


def _constant(side: Side) -> bool:
    return bool(side.samples.min() == side.samples.max())


def _same_direction(verdict: Verdict, cycles: Verdict) -> bool:
    if verdict.ratio is None or cycles.ratio is None:
        return False
    return (verdict.ratio > 1.0) == (cycles.ratio > 1.0)


def _scale(unit: str | None, metric: Metric) -> float:
    return 1.0 if unit is None else conversion(unit, metric.unit)
