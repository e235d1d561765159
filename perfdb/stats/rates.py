"""Compare counts of failures: out-of-memory, errors, timeouts, unmet objectives. Exact at any count, zero too.

Two shares x/n and y/m are compared by Boschloo's exact unconditional test (1970): Fisher's p is the statistic, its null
probability is maximised over the unknown common share. It is uniformly more powerful than Fisher's test (0 of 5 against
5 of 5: 0.002, not 0.008). Above 60 trials a side Fisher's exact conditional test (1935) stands alone, both two-sided.
Each share's interval is Clopper & Pearson 1934; the interval of their ratio divides the ends of the two, each at half
of the error (Bonferroni), so that it covers at every true pair of shares. Requests of one launch fail together (one
crash loses a batch), so where counts come launch by launch their extra scatter is measured (Pearson's chi square over
its degrees of freedom, as Rao & Scott 1992 do for clustered counts) and counts are divided by it before the test.

It fails where there is one launch a side and failures come in bursts: nothing then shows the bursts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betaincinv, gammaln, ndtri

from perfdb.stats.decision import change_outcome, percent
from perfdb.stats.policy import Metric, Policy, Statistic
from perfdb.stats.ranks import Floats
from perfdb.stats.verdict import Outcome, Rules, Verdict

FAILURE_RATE = Metric(name="failures", unit="fraction", lower_is_better=True, statistic=Statistic.RATE)
_MOST_TRIALS = 10_000_000
_BOSCHLOO_TRIALS = 60
# Common shares over which the null probability is maximised; even in angle, so that the ends are covered.
_SHARES = np.sin(np.linspace(0.005, np.pi / 2.0 - 0.005, 401)) ** 2


@dataclass(frozen=True, slots=True)
class Count:
    """`events` among `trials`: failed requests among requests, launches out of memory among launches."""

    events: int
    trials: int


@dataclass(frozen=True, slots=True)
class _Share:
    """Sums over the launches of one side. design: factor by which launches scatter beyond independent trials."""

    events: int
    trials: int
    launches: int
    design: float

    @property
    def rate(self) -> float:
        return self.events / self.trials

    @property
    def effective(self) -> Count:
        """Counts that independent trials would need to be worth the same."""
        return Count(round(self.events / self.design), max(1, round(self.trials / self.design)))


def compare_rates(
    base: Count | Sequence[Count],
    head: Count | Sequence[Count],
    *,
    metric: Metric = FAILURE_RATE,
    policy: Policy = Policy(),  # noqa: B008  # frozen value, the documented default
) -> Verdict:
    """Decide whether the share of events changed. One `Count` for a side, or one for each launch.

    `ratio`, `base_value`, `head_value` and `difference` are of shares (0.02 is 2 %); `ratio` is None where base had
    no events and head had some. `policy.absolute_floor` is a share, default 0. 0 to 0 is `same`, and the reasons say
    what share the trials cannot exclude. `launches_needed` counts launches like these.

    Raises ValueError with side and launch for a negative count or more events than trials. No trials: `invalid`.
    """
    sides = [_share(name, counts) for name, counts in (("base", base), ("head", head))]
    left, right = sides
    if not left.trials or not right.trials:
        empty = " and ".join(n for n, side in zip(("base", "head"), sides, strict=True) if not side.trials)
        return Verdict(Outcome.INVALID, (f"invalid: no trials on {empty}.",), left.launches, right.launches)
    p_value = shares_p(left.effective, right.effective)
    difference = right.rate - left.rate
    floor = policy.absolute_floor or 0.0
    relative = difference != 0.0 and (not left.events or abs(difference) >= policy.relative_floor * left.rate)
    rules = Rules(relative, difference != 0.0 and abs(difference) >= floor, p_value < policy.alpha)
    outcome = change_outcome(difference, metric) if rules.all_met else Outcome.INCONCLUSIVE
    nothing = not left.events and not right.events
    if nothing or (not rules.all_met and _equivalent(left, right, policy)):
        outcome = Outcome.SAME
    needed = _launches_needed(left, right, policy) if outcome is Outcome.INCONCLUSIVE else None
    ratio = right.rate / left.rate if left.events else (1.0 if not right.events else None)
    low, high = _ratio_interval(left, right, policy.confidence)
    return Verdict(
        outcome=outcome,
        reasons=_reasons(left, right, rules, outcome, policy, p_value),
        n_base=left.launches,
        n_head=right.launches,
        ratio=ratio,
        low=low,
        high=high,
        p_value=p_value,
        launches_needed=needed,
        base_value=left.rate,
        head_value=right.rate,
        difference=difference,
        unit=metric.unit,
        confidence=policy.confidence,
        method="exact",
        rules=rules,
    )


def shares_p(base: Count, head: Count) -> float:
    """Two-sided exact p of "one common share": Boschloo up to 60 trials a side, Fisher above."""
    if max(base.trials, head.trials) > _BOSCHLOO_TRIALS:
        return fisher_p(base, head)
    table = _fisher_table(base.trials, head.trials)
    as_extreme = (table <= table[base.events, head.events] * (1.0 + 1e-7)).astype(np.float64)
    chances = _binomials(base.trials) @ as_extreme * _binomials(head.trials)
    return float(min(1.0, chances.sum(axis=1).max()))


def fisher_p(base: Count, head: Count) -> float:
    """Two-sided Fisher p: the chance, given both margins, of a table as improbable as the one seen or more so."""
    events = base.events + head.events
    values = np.arange(max(0, events - base.trials), min(events, head.trials) + 1)
    logs = (
        _log_choose(head.trials, values)
        + _log_choose(base.trials, events - values)
        - _log_choose(base.trials + head.trials, np.asarray(events))
    )
    seen = logs[head.events - values[0]]
    return float(min(1.0, np.exp(logs[logs <= seen + 1e-7]).sum()))


@lru_cache(maxsize=64)
def _fisher_table(n: int, m: int) -> Floats:
    """Fisher's two-sided p of every table, shape (n + 1, m + 1)."""
    table = np.empty((n + 1, m + 1))
    logs = _log_choose(n, np.arange(n + 1))[:, None] + _log_choose(m, np.arange(m + 1))[None, :]
    for events in range(n + m + 1):
        x = np.arange(max(0, events - m), min(n, events) + 1)
        weights = np.exp(logs[x, events - x] - logs[x, events - x].max())
        order = np.argsort(weights)
        cumulative = np.cumsum(weights[order]) / weights.sum()
        # Tables of equal probability belong together, whatever rounding says.
        table[x, events - x] = cumulative[
            np.searchsorted(weights[order], weights * (1.0 + 1e-7), side="right") - 1
        ]
    return table


@lru_cache(maxsize=64)
def _binomials(n: int) -> Floats:
    """Binomial chances of 0 .. n for each share of the grid, shape (grid, n + 1)."""
    logs = _log_choose(n, np.arange(n + 1)) + np.arange(n + 1) * np.log(_SHARES)[:, None]
    return np.asarray(np.exp(logs + np.arange(n, -1, -1) * np.log1p(-_SHARES)[:, None]))


def share_interval(count: Count, *, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a share; covers at least `confidence` at every true share."""
    miss = (1.0 - confidence) / 2.0
    x, n = count.events, count.trials
    low = float(betaincinv(x, n - x + 1, miss)) if x else 0.0
    high = float(betaincinv(x + 1, n - x, 1.0 - miss)) if x < n else 1.0
    return low, high


def _share(name: str, counts: Count | Sequence[Count]) -> _Share:
    rows = [counts] if isinstance(counts, Count) else list(counts)
    for number, row in enumerate(rows, 1):
        if row.events < 0 or row.trials < 0 or row.events > row.trials:
            raise ValueError(f"{name} launch {number}: {row.events} events of {row.trials} trials cannot be")
    used = [row for row in rows if row.trials]
    events, trials = sum(row.events for row in used), sum(row.trials for row in used)
    return _Share(events, trials, len(used), _design_factor(used, events, trials))


def _design_factor(rows: list[Count], events: int, trials: int) -> float:
    """Pearson's chi square over launches by its degrees of freedom; 1 where launches scatter no more than chance."""
    if len(rows) < 2 or events in (0, trials):
        return 1.0
    share = events / trials
    chi_square = sum(
        (row.events - row.trials * share) ** 2 / (row.trials * share * (1.0 - share)) for row in rows
    )
    return max(1.0, chi_square / (len(rows) - 1))


def _equivalent(left: _Share, right: _Share, policy: Policy) -> bool:
    """The ratio's interval inside the margin, or the difference's inside the absolute floor, if there is one."""
    low, high = _ratio_interval(left, right, policy.confidence)
    margin = 1.0 + policy.equivalence_margin
    if low is not None and high is not None and low >= 1.0 / margin and high <= margin:
        return True
    base, head = _joint_intervals(left, right, policy.confidence)
    floor = policy.absolute_floor or 0.0
    return head[1] - base[0] <= floor and base[1] - head[0] <= floor


def _ratio_interval(left: _Share, right: _Share, confidence: float) -> tuple[float | None, float | None]:
    base, head = _joint_intervals(left, right, confidence)
    return head[0] / base[1], head[1] / base[0] if base[0] > 0.0 else None


def _joint_intervals(
    left: _Share, right: _Share, confidence: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intervals of both shares that hold at once with the confidence."""
    each = 1.0 - (1.0 - confidence) / 2.0
    return share_interval(left.effective, confidence=each), share_interval(right.effective, confidence=each)


def _launches_needed(left: _Share, right: _Share, policy: Policy) -> int | None:
    """Launches like these until the present shares differ at the policy's level and power; None if they are equal."""
    gap = abs(right.rate - left.rate)
    if gap == 0.0:
        return None
    mean = (left.rate + right.rate) / 2.0
    level, power = float(ndtri(1.0 - policy.alpha / 2.0)), float(ndtri(policy.power))
    own = left.rate * (1.0 - left.rate) + right.rate * (1.0 - right.rate)
    trials = ((level * math.sqrt(2.0 * mean * (1.0 - mean)) + power * math.sqrt(own)) / gap) ** 2
    design = max(left.design, right.design)
    per_launch = min(left.trials / left.launches, right.trials / right.launches)
    return max(
        min(left.launches, right.launches) + 1, math.ceil(min(trials * design, _MOST_TRIALS) / per_launch)
    )


def _reasons(
    left: _Share, right: _Share, rules: Rules, outcome: Outcome, policy: Policy, p_value: float
) -> tuple[str, ...]:
    floor = policy.absolute_floor or 0.0
    ratio = right.rate / left.rate if left.events else (1.0 if not right.events else None)
    counts = f"{left.events} of {left.trials} -> {right.events} of {right.trials}"
    reached = {True: "is at or beyond", False: "is under"}
    points = f"{100 * (right.rate - left.rate):+.3g} percentage points"
    sentences = [
        f"relative: {percent(ratio)} {reached[rules.relative]} the floor of {100 * policy.relative_floor:g} %.",
        f"absolute: {points} {reached[rules.absolute]} the floor of {100 * floor:.3g}.",
        f"noise: p = {p_value:.2g} {'<' if rules.noise else '>='} {policy.alpha:g} (exact test of two shares).",
    ]
    design = max(left.design, right.design)
    if design > 1.5:
        sentences.append(
            f"failures come in bursts: launches scatter {design:.2g} times as much as chance, allowed for."
        )
    if not left.events and not right.events:
        fewest = min(left.trials, right.trials)
        limit = share_interval(Count(0, fewest), confidence=policy.confidence)[1]
        sentences.append(
            f"no events on either side; {fewest} trials cannot exclude a share of {100 * limit:.2g} %."
        )
    return (*sentences, f"{outcome.value}: {counts}.")


def _log_choose(n: int, k: Floats | np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
