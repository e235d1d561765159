"""From a measured effect to an outcome: the relative, the absolute and the noise rule, each said in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfdb.stats.effect import RANK_LAUNCHES, Effect
from perfdb.stats.noise import Noise
from perfdb.stats.planning import detectable, launches_to_decide
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.verdict import Outcome, Rules, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured between two sides, before any rule.

    logarithmic: whether the effect is a log ratio; otherwise a plain difference (values of zero or below).
    effect: None where the launches estimate no noise (then only `estimate` is known).
    what: the unit of statistics in words, "launches" or "pairs".
    """

    estimate: float
    effect: Effect | None
    logarithmic: bool
    base_value: float
    head_value: float
    n_base: int
    n_head: int
    method: str
    absolute_floor: float
    noise: Noise | None = None
    what: str = "launches"

    @property
    def fewest(self) -> int:
        return min(self.n_base, self.n_head)

    def ratio(self, estimate: float) -> float | None:
        if self.logarithmic:
            return math.exp(estimate)
        if self.base_value > 0.0:
            return 1.0 + estimate / self.base_value
        return 1.0 if self.base_value == 0.0 and estimate == 0.0 else None

    def on_scale(self, fraction: float) -> float:
        """A relative size on the effect's own scale; 0 where there is no base to be relative to."""
        return math.log1p(fraction) if self.logarithmic else fraction * abs(self.base_value)

    def absolute(self, estimate: float) -> float:
        return self.base_value * math.expm1(estimate) if self.logarithmic else estimate


def decide(finding: Finding, *, metric: Metric, policy: Policy) -> Verdict:
    """Apply the three rules; a change needs all of them, equivalence needs the whole interval in the margin."""
    estimate, effect = finding.estimate, finding.effect
    relative = estimate != 0.0 and abs(estimate) >= finding.on_scale(policy.relative_floor)
    difference = finding.absolute(estimate)
    absolute = estimate != 0.0 and abs(difference) >= finding.absolute_floor * (1.0 - 1e-9)
    obstacle = _obstacle(finding, policy)
    noise = obstacle is None and effect is not None and float(effect.p_value) < policy.alpha
    rules = Rules(relative, absolute, noise)
    same = _equivalent(finding, policy)
    outcome = (
        change_outcome(estimate, metric)
        if rules.all_met
        else Outcome.SAME if same else Outcome.INCONCLUSIVE
    )  # fmt: skip
    needed = _launches_needed(finding, policy) if outcome is Outcome.INCONCLUSIVE else None
    reasons = (
        *_rule_sentences(finding, rules, policy, metric.unit, obstacle),
        _conclusion(finding, outcome, policy, needed),
    )
    return Verdict(
        outcome=outcome,
        reasons=reasons,
        n_base=finding.n_base,
        n_head=finding.n_head,
        ratio=finding.ratio(estimate),
        low=finding.ratio(float(effect.low)) if effect else None,
        high=finding.ratio(float(effect.high)) if effect else None,
        p_value=float(effect.p_value) if effect else None,
        minimum_detectable=_minimum_detectable(finding, policy),
        launches_needed=needed,
        base_value=finding.base_value,
        head_value=finding.head_value,
        difference=difference,
        unit=metric.unit,
        confidence=policy.confidence,
        method=finding.method,
        rules=rules,
    )


def change_outcome(estimate: float, metric: Metric) -> Outcome:
    """Regressed, improved, or changed where the metric has no direction. `estimate` is not zero."""
    if metric.lower_is_better is None:
        return Outcome.CHANGED
    return Outcome.REGRESSED if (estimate > 0.0) is metric.lower_is_better else Outcome.IMPROVED


def percent(ratio: float | None) -> str:
    """ "+3.10 %" for 1.031; a ratio without a base has no percentage."""
    return "no percentage (base is 0)" if ratio is None else f"{100.0 * (ratio - 1.0):+.2f} %"


def _obstacle(finding: Finding, policy: Policy) -> str | None:
    """Why these launches cannot decide whatever their p-value, None where they can."""
    few, what = finding.fewest, finding.what
    gap = abs(finding.estimate)
    if finding.noise is not None:
        if few < policy.min_launches and gap <= finding.noise.plausible_gap:
            seen = math.expm1(finding.noise.plausible_gap)
            return (
                f"{few} {what} a side, and equal code was seen {100 * seen:.2g} % apart from launch to launch"
            )
        return None
    if few < policy.min_launches:
        return (
            f"{few} {what} a side cannot show the noise ({policy.min_launches} are asked for, "
            "or the noise of the series' history)"
        )
    if few < RANK_LAUNCHES and gap < finding.on_scale(policy.few_launches_floor):
        return (
            f"{few} {what} a side fall into separate modes by chance; without the series' noise only a change of "
            f"{100 * policy.few_launches_floor:g} % counts ({RANK_LAUNCHES} {what} lift this)"
        )
    return None


def _equivalent(finding: Finding, policy: Policy) -> bool:
    effect = finding.effect
    if effect is None or (finding.noise is None and finding.fewest < policy.min_launches):
        return False
    margin = finding.on_scale(policy.equivalence_margin)
    return float(effect.low) >= -margin and float(effect.high) <= margin


def _launches_needed(finding: Finding, policy: Policy) -> int:
    few_are_enough = finding.noise is not None or finding.fewest >= RANK_LAUNCHES
    least = finding.fewest + 1 if few_are_enough else max(RANK_LAUNCHES, finding.fewest + 1)
    if finding.effect is None:
        return least
    noise = finding.noise
    fixed = math.sqrt(2.0) * noise.between_commits if noise else 0.0
    needed = launches_to_decide(
        finding.estimate,
        float(finding.effect.spread),
        policy,
        floor=finding.on_scale(policy.relative_floor),
        margin=finding.on_scale(policy.equivalence_margin),
        fixed=fixed,
        known=noise.degrees if noise else 0.0,
    )
    return max(least, needed)


def _minimum_detectable(finding: Finding, policy: Policy) -> float | None:
    effect = finding.effect
    if effect is None or (not finding.logarithmic and finding.base_value <= 0.0):
        return None
    size = detectable(float(effect.error), float(effect.degrees), policy, launches=finding.fewest)
    fraction = math.expm1(size) if finding.logarithmic else size / finding.base_value
    few = finding.noise is None and finding.fewest < RANK_LAUNCHES
    return max(fraction, policy.relative_floor, policy.few_launches_floor if few else 0.0)


def _rule_sentences(
    finding: Finding, rules: Rules, policy: Policy, unit: str, obstacle: str | None
) -> tuple[str, str, str]:
    beyond = {True: "is at or beyond", False: "is under"}
    relative = (
        f"relative: {percent(finding.ratio(finding.estimate))} {beyond[rules.relative]} "
        f"the floor of {100 * policy.relative_floor:g} %."
    )
    absolute = (
        f"absolute: {finding.absolute(finding.estimate):+.4g} {unit} {beyond[rules.absolute]} "
        f"the floor of {finding.absolute_floor:.3g} {unit}."
    )
    if obstacle is not None:
        return relative, absolute, f"noise: {obstacle}."
    assert finding.effect is not None
    p_value = float(finding.effect.p_value)
    sign = "<" if p_value < policy.alpha else ">="
    sides = f"{finding.n_base} against {finding.n_head} {finding.what}"
    if finding.what == "pairs":
        sides = f"{finding.n_base} pairs"
    return (
        relative,
        absolute,
        f"noise: p = {p_value:.2g} {sign} {policy.alpha:g} ({finding.method}, {sides}).",
    )


def _conclusion(finding: Finding, outcome: Outcome, policy: Policy, needed: int | None) -> str:
    effect = finding.effect
    shown = percent(finding.ratio(finding.estimate))
    if effect is not None and finding.ratio(float(effect.low)) is not None:
        low, high = finding.ratio(float(effect.low)), finding.ratio(float(effect.high))
        shown += f" [{percent(low)}, {percent(high)}]"
    if outcome is Outcome.SAME:
        return f"same: {shown} lies within the margin of {100 * policy.equivalence_margin:g} %."
    if outcome is Outcome.INCONCLUSIVE:
        return f"inconclusive: {shown}; about {needed} {finding.what} a side would decide."
    return f"{outcome.value}: {shown}."
