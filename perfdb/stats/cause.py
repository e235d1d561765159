"""Why did it change: code, infrastructure, workload or the benchmark's method? Evidence lines and their posterior.

Every line is a small function of plain facts that returns None where the facts are absent: what was not recorded says
nothing. A likelihood is the probability of the observation under each cause; only their ratios matter. They are
judgements, bounded away from 0 so that no single line but an identical artifact decides alone against all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import expm1, log, prod, sqrt
from statistics import median, stdev

CAUSES = ("code", "infra", "workload", "method")
UNKNOWN = "unknown"
PRIOR = {"code": 0.5, "infra": 0.2, "workload": 0.1, "method": 0.1, UNKNOWN: 0.1}
CARRIES = 0.8
"""Posterior that a cause needs to be said; below it the answer is unknown."""
LEAST_SHARE = 0.5
"""A control (sentinel, clock) explains a change when it moved by at least this share of it, in logarithms."""
DEVIATIONS = 3.0
LEAST_SCATTER = 0.005
"""Scatter of a control's log value that is always allowed for; few launches show less by chance."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of evidence. likelihood: of what was seen under each of CAUSES."""

    name: str
    sentence: str
    likelihood: Mapping[str, float]
    experiment: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """cause: one of CAUSES or unknown. posterior: over all five, adding to 1."""

    cause: str
    posterior: Mapping[str, float]


def judge(lines: Iterable[Line]) -> Verdict:
    """Bayes' rule over independent lines. Under `unknown` a line is as likely as on average over the causes."""
    weights = dict(PRIOR)
    for line in lines:
        values = [line.likelihood[cause] for cause in CAUSES]
        for cause, value in zip(CAUSES, values, strict=True):
            weights[cause] *= value
        weights[UNKNOWN] *= prod(values) ** (1 / len(values))
    total = sum(weights.values())
    posterior = {cause: weight / total for cause, weight in weights.items()}
    best = max(CAUSES, key=lambda cause: posterior[cause])
    return Verdict(best if posterior[best] >= CARRIES else UNKNOWN, posterior)


def _line(name: str, sentence: str, code: float, infra: float, workload: float, method: float) -> Line:
    return Line(name, sentence, dict(zip(CAUSES, (code, infra, workload, method), strict=True)))


def _moved(before: Sequence[float], after: Sequence[float], change: float) -> tuple[float, bool]:
    """(log change of the medians, whether it is beyond its scatter and of the size and sign of `change`)."""
    old, new = [log(v) for v in before], [log(v) for v in after]
    delta = median(new) - median(old)
    scatter = max([LEAST_SCATTER, *(stdev(side) for side in (old, new) if len(side) > 2)])
    error = scatter * sqrt(1 / len(old) + 1 / len(new))
    return delta, abs(delta) > DEVIATIONS * error and delta * change > 0 and abs(delta) > LEAST_SHARE * abs(
        change
    )


def sentinel(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], *, slower: float
) -> Line | None:
    """The control benchmark's times by component in launches on both sides. slower: log of the slowdown seen."""
    both = [name for name in before if before[name] and after.get(name)]
    if not both:
        return None
    moves = {name: _moved(before[name], after[name], slower) for name in both}
    moved = [name for name in both if moves[name][1]]
    if moved:
        said = ", ".join(f"{name} {_percent(moves[name][0])}" for name in moved)
        return _line("sentinel moved", f"The control benchmark moved as well: {said}.", 0.05, 0.9, 0.05, 0.05)
    largest = max((moves[name][0] for name in both), key=abs)
    return _line(
        "sentinel steady",
        f"The control benchmark did not follow (at most {_percent(largest)}).",
        0.95,
        0.3,
        0.95,
        0.95,
    )


def clock(before: Sequence[float], after: Sequence[float], *, slower: float) -> Line | None:
    """Clock in MHz counted beside the samples: a change of time that is none in cycles is the clock's."""
    if not before or not after:
        return None
    delta, explains = _moved([1 / v for v in before], [1 / v for v in after], slower)
    if explains:
        return _line(
            "gone in cycles",
            f"In cycles the change is gone: the clock moved {_percent(-delta)}.",
            0.03,
            0.9,
            0.05,
            0.03,
        )
    return _line("same in cycles", "In cycles the change is the same as in time.", 0.95, 0.4, 0.9, 0.9)


def workers(changes: Mapping[str, float], *, slower: float) -> Line | None:
    """Log change by worker, for workers that measured both sides; None for fewer than two."""
    if len(changes) < 2:
        return None
    shows = [
        name for name, change in changes.items() if change * slower > 0 and abs(change) > abs(slower) / 2
    ]
    quiet = sorted(changes.keys() - set(shows))
    if not shows:
        return None
    if quiet:
        sentence = f"It shows on {', '.join(sorted(shows))} and not on {', '.join(quiet)}."
        return _line("some workers", sentence, 0.02, 0.9, 0.02, 0.02)
    return _line("all workers", f"It shows on all {len(shows)} workers.", 0.95, 0.15, 0.95, 0.95)


def other_worker(before: set[str], after: set[str]) -> Line | None:
    """Both sides measured by different machines: the machine is confounded with the commit."""
    if not before or not after or before & after:
        return None
    sentence = f"The old level was measured on {', '.join(sorted(before))}, the new one on {', '.join(sorted(after))}."
    return _line("other worker", sentence, 0.2, 0.7, 0.2, 0.2)


def other_series(moved: int, total: int) -> Line | None:
    """Of the other cases that the same workers measured over the range, how many moved the same way."""
    if total < 3:
        return None
    share = moved / total
    sentence = f"{moved} of {total} other cases on the same workers moved the same way."
    if share >= 0.8:
        return _line("everything moved", sentence, 0.1, 0.8, 0.5, 0.5)  # cases share a trace
    if share <= 0.3:
        return _line("others steady", sentence, 0.85, 0.15, 0.7, 0.6)
    return None


def health(new_reasons: Sequence[str]) -> Line | None:
    """What the health readings of the new side show and those of the old side do not, in words."""
    if not new_reasons:
        return None
    return _line("health", f"Only since the change: {'; '.join(new_reasons)}.", 0.05, 0.9, 0.05, 0.05)


def environment(changed: Sequence[str]) -> Line | None:
    """Environment fields that differ between the sides; an empty list says that all were recorded and equal."""
    if changed:
        return _line(
            "environment changed",
            f"The environment changed in the range: {'; '.join(changed)}.",
            0.1,
            0.9,
            0.1,
            0.1,
        )
    return _line("environment equal", "The environment is the same on both sides.", 0.9, 0.7, 0.9, 0.9)


def trace(*, changed: bool, drifted: Sequence[str] = (), decided: bool = False) -> Line:
    """The workload's content hash, and the dimensions that drifted where it changed."""
    if not changed:
        return _line("workload equal", "Both sides replayed the same workload.", 0.9, 0.9, 0.001, 0.9)
    if drifted:
        return _line(
            "workload drifted", f"The workload drifted: {', '.join(drifted)}.", 0.05, 0.05, 0.95, 0.05
        )
    if decided:
        return _line("workload alike", "Another trace, but of the same distributions.", 0.5, 0.5, 0.3, 0.5)
    return _line("workload changed", "The workload is another one.", 0.02, 0.02, 0.9, 0.02)


def fixed_input() -> Line:
    """A case whose input is made by its own code: no recorded workload stands between the commits."""
    return _line(
        "input fixed",
        "The case makes its input itself; no recorded workload takes part.",
        0.9,
        0.9,
        0.01,
        0.9,
    )


def method(*, definition: bool | None, harness: Sequence[str] = ()) -> Line | None:
    """definition: whether the benchmark's definition changed, None where not recorded. harness: old and new version."""
    if definition:
        return _line("definition changed", "The benchmark's definition changed.", 0.02, 0.02, 0.1, 0.95)
    if harness:
        return _line(
            "harness changed",
            f"The harness changed from {harness[0]} to {harness[-1]}.",
            0.02,
            0.02,
            0.02,
            0.95,
        )
    if definition is None:
        return None
    return _line("method equal", "Definition and harness are the same on both sides.", 0.9, 0.9, 0.9, 0.005)


def artifact(*, identical: bool) -> Line:
    """Whether the built tree is the same, byte for byte, on both sides."""
    if identical:
        return _line(
            "artifact identical", "Both sides are the same build, byte for byte.", 1e-5, 0.9, 0.6, 0.5
        )
    return _line("artifact differs", "The built artifacts differ.", 0.95, 0.9, 0.8, 0.9)


def again(log_ratio: float, *, slower: float, launches: int) -> Line:
    """The old commit measured again after the change was seen, against its old level: the deciding experiment."""
    if log_ratio * slower > 0 and abs(log_ratio) > abs(slower) / 2:
        sentence = (
            f"The old commit, measured again {launches} times, is at the new level ({_percent(log_ratio)})."
        )
        line = _line("old commit slow now", sentence, 0.001, 0.95, 0.05, 0.3)
    else:
        sentence = (
            f"The old commit, measured again {launches} times, is at its old level ({_percent(log_ratio)})."
        )
        line = _line("old commit as before", sentence, 0.95, 0.03, 0.9, 0.6)
    return Line(line.name, line.sentence, line.likelihood, experiment=True)


def _percent(log_ratio: float) -> str:
    return f"{100 * expm1(log_ratio):+.1f} %"
