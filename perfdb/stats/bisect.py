"""Find the first bad commit under noise: a Bayesian search with a stated probability.

Commits are numbered from 0, the good end, to ``n_commits``, the bad end; commit c is the culprit when its parent c - 1
is still at the old level and c is at the new one. See docs/bisection.md for the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ks_2samp

from perfdb.stats import bisect_verify as verify
from perfdb.stats.bisect_answer import Judge, Kind, Verdict
from perfdb.stats.bisect_choose import Chooser, Costs, Probe
from perfdb.stats.bisect_evidence import Evidence
from perfdb.stats.bisect_launches import (
    Launch,
    Response,
    counts_only,
    expected_step,
    launch_value,
    to_scale,
    without_infinity,
)
from perfdb.stats.bisect_likelihood import (
    KERNEL_LAUNCHES,
    Data,
    Floats,
    NoiseLaws,
    collect,
    laws_from_history,
    laws_without_history,
)
from perfdb.stats.bisect_model import CountModel, LevelModel, StepPrior

__all__ = ["Answer", "CommitPosterior", "Kind", "Probe", "Search"]

END_LAUNCHES = 1  # at first; more while the ends are in doubt
END_LAUNCHES_WITHOUT_HISTORY = 2
DEFAULT_MAX_COST = 600.0  # in launches
MINIMUM_HISTORY = 5
# The share of the stated risk that a name may use up: the rest is for noise laws that are only assumed.
RISK_SHARE = 0.3
RISK_SHARE_WITHOUT_HISTORY = 0.1


@dataclass(frozen=True)
class Answer:
    """What is known. ``commits`` names the culprit, the range it lies in, or all steps; empty where there is none.

    ``launches`` and ``cost`` are what was spent, builds included in ``cost``.
    """

    kind: Kind
    commits: tuple[int, ...]
    probability: float
    launches: int
    cost: float
    reason: str


@dataclass(frozen=True)
class CommitPosterior:
    """``commits[c]`` is the probability of a step at commit c (index 0 unused); the rest are whole hypotheses."""

    commits: tuple[float, ...]
    none: float
    several: float
    reversed: float


class Search:
    """A noisy search for the first bad commit.

    Pure: the state is what was observed, in that order, so that replaying the observations gives the same ``next``
    and the same ``answer``. Nothing is drawn at random; ``seed`` is kept for callers that store it.

    Args:
        n_commits: number of commits after the good end; the bad end is commit ``n_commits``.
        alert_ratio: bad level over good level as alerted; below 1 where the metric fell. May be infinite for a rate
            that was 0.
        response: ``level`` (a time or a size), ``rate`` (0 to 1, 0 allowed) or ``pass_fail`` (0 passed, else failed).
        history: launches of the same benchmark at one level (a number or raw samples each), for the noise.
        build_cost, launch_cost: in any one unit.
        built: commits with a cached build.
        confidence: probability to be reached before a name is given.
        max_cost: what may be spent; by default as much as 600 launches.

    Raises:
        ValueError: an argument out of its range.
    """

    def __init__(
        self,
        n_commits: int,
        *,
        alert_ratio: float,
        response: Response = "level",
        history: Sequence[Launch] | None = None,
        build_cost: float = 3.0,
        launch_cost: float = 1.0,
        built: Sequence[int] = (),
        confidence: float = 0.95,
        max_cost: float | None = None,
        seed: int = 0,
    ) -> None:
        if n_commits < 1:
            raise ValueError(
                f"n_commits is {n_commits}: a range needs at least one commit after its good end"
            )
        if response not in ("level", "rate", "pass_fail"):
            raise ValueError(f"response {response!r} is none of level, rate, pass_fail")
        if not alert_ratio > 0 or alert_ratio == 1 or (response == "level" and math.isinf(alert_ratio)):
            raise ValueError(f"alert_ratio is {alert_ratio}: it must be positive and differ from 1")
        if not 0.5 < confidence < 1:
            raise ValueError(f"confidence is {confidence}: it must lie between 0.5 and 1")
        if build_cost < 0 or launch_cost <= 0 or (max_cost is not None and max_cost <= 0):
            raise ValueError("build_cost must not be negative; launch_cost and max_cost must be positive")
        if any(not 0 <= commit <= n_commits for commit in built):
            raise ValueError(f"built names a commit outside 0..{n_commits}")
        self.n_commits = n_commits
        self.alert_ratio = alert_ratio
        self.response: Response = response
        self.confidence = confidence
        self.build_cost = build_cost
        self.launch_cost = launch_cost
        self.max_cost = DEFAULT_MAX_COST * launch_cost if max_cost is None else max_cost
        self.seed = seed
        self._sign = 1.0 if alert_ratio > 1 else -1.0
        values = [launch_value(launch, response) for launch in (() if history is None else history)]
        self._history = np.asarray([value for value in values if math.isfinite(value)], dtype=np.float64)
        known = self._history.size >= MINIMUM_HISTORY and response == "level"
        self._end_launches = END_LAUNCHES if known else END_LAUNCHES_WITHOUT_HISTORY
        self._raw: dict[int, list[float]] = {}
        self._broken: set[int] = set()
        self._built = set(built)
        self._cost = 0.0
        self._pairs: dict[tuple[int, int], verify.Pair] = {}
        self._laws: dict[tuple[float, bool], NoiseLaws] = {}
        self._model: LevelModel | CountModel | None = None
        self._evidence: Evidence | None = None

    def observe(self, commit: int, launches: Sequence[Launch] | None) -> None:
        """Record launches of ``commit``, or that it could not be built (None).

        Raises:
            ValueError: no such commit, an empty list, an impossible value, or launches of an unbuildable commit.
        """
        if not 0 <= commit <= self.n_commits:
            raise ValueError(f"commit {commit} is outside 0..{self.n_commits}")
        if launches is None:
            if commit in self._raw:
                raise ValueError(f"commit {commit} has launches and cannot be unbuildable")
            if commit not in self._broken:
                self._broken.add(commit)
                self._cost += self.build_cost
        else:
            values = [launch_value(launch, self.response) for launch in launches]
            if not values:
                raise ValueError(f"commit {commit}: no launches")
            if commit in self._broken:
                raise ValueError(f"commit {commit} was observed as unbuildable")
            if commit not in self._built:
                self._built.add(commit)
                self._cost += self.build_cost
            self._raw.setdefault(commit, []).extend(values)
            self._cost += self.launch_cost * len(values)
        self._update()

    def launches_of(self, commit: int) -> tuple[float, ...]:
        """The launches observed at ``commit``, one number each, as they came."""
        return tuple(self._raw.get(commit, ()))

    def _update(self) -> None:
        self._evidence = None
        ends = self._ends()
        if ends is None or ends[0] == ends[1]:
            return
        if any(len(self._raw.get(end, [])) < self._end_launches for end in ends):
            return
        launches = self._scaled(ends)
        data = collect(launches)
        model = self._choose_model(data, ends)
        posterior = model.posterior(data, np.diff(data.commits), self.n_commits)
        evidence = Evidence(
            self.n_commits,
            ends,
            frozenset(self._broken),
            launches,
            self._counts(),
            model,
            data,
            posterior,
            self._pairs,
        )
        for name in evidence.names():
            key = (name.before, name.after)
            if key not in self._pairs:
                self._pairs[key] = verify.Pair(*key, len(launches[name.before]), len(launches[name.after]))
        self._evidence = evidence

    def _ends(self) -> tuple[int, int] | None:
        """The outermost commits not known to be unbuildable, or None where all are."""
        usable = [commit for commit in range(self.n_commits + 1) if commit not in self._broken]
        return (usable[0], usable[-1]) if usable else None

    def _scaled(self, ends: tuple[int, int]) -> dict[int, list[float]]:
        """Launches on the working scale, the sought step going up."""
        values = np.asarray([value for launches in self._raw.values() for value in launches])
        if self._counts():
            scaled = values if self._sign > 0 else 1.0 - values
        else:
            scaled = without_infinity(to_scale(values, self.response, self._sign), self._step(ends))
        result, start = {}, 0
        for commit, launches in self._raw.items():
            result[commit] = scaled[start : start + len(launches)].tolist()
            start += len(launches)
        return result

    def _counts(self) -> bool:
        return counts_only([value for launches in self._raw.values() for value in launches], self.response)

    def _step(self, ends: tuple[int, int]) -> float:
        good_rate = float(np.median(self._raw[ends[0]])) if self.response == "rate" else 0.0
        return expected_step(self.alert_ratio, self.response, good_rate)

    def _choose_model(self, data: Data, ends: tuple[int, int]) -> LevelModel | CountModel:
        if self._counts():
            if not isinstance(self._model, CountModel):
                self._model = CountModel()
            return self._model
        step = self._step(ends)
        laws = self._noise_laws(step, data)
        prior = StepPrior(step, 0.4 if self.response == "level" else 0.8)
        if not isinstance(self._model, LevelModel):
            self._model = LevelModel(prior, laws)
        self._model.prior, self._model.laws = prior, laws
        return self._model

    def _noise_laws(self, step: float, data: Data) -> NoiseLaws:
        if self._history.size < MINIMUM_HISTORY:
            return laws_without_history(step)
        history = to_scale(self._history, self.response, self._sign)
        key = (step, _history_fits(history, data))
        if key not in self._laws:
            self._laws[key] = laws_from_history(history, step, trusted=key[1])
        return self._laws[key]

    def next(self, k: int = 1) -> list[Probe]:
        """The next probes, at most ``k`` at once; empty when finished. Asking changes nothing."""
        if k < 1:
            raise ValueError(f"k is {k}: at least one probe")
        if self._finished() is not None:
            return []
        return self._next_ends(k) if self._evidence is None else self._chooser(self._evidence).next(k)

    def _next_ends(self, k: int) -> list[Probe]:
        """Both ends, in the order A B (B A) for a single worker."""
        ends = self._ends()
        assert ends is not None
        good, bad = (self._end_launches - len(self._raw.get(end, [])) for end in ends)
        if k > 1:
            probes = [Probe(end, count) for end, count in zip(ends, (good, bad), strict=True) if count > 0]
            return probes + self._spread(k - len(probes))
        if good == self._end_launches:
            return [Probe(ends[0], 1)]
        return [Probe(ends[1], bad)] if bad > 0 else [Probe(ends[0], good)]

    def _spread(self, k: int) -> list[Probe]:
        """Evenly spaced commits for workers that the ends leave idle; none once any commit between was launched."""
        ends = self._ends()
        if ends is None or any(ends[0] < commit < ends[1] for commit in self._raw):
            return []
        even = {round(ends[0] + (ends[1] - ends[0]) * j / (k + 1)) for j in range(1, k + 1)}
        return [Probe(commit, 2) for commit in sorted(even - self._broken - set(ends))]

    def _chooser(self, evidence: Evidence) -> Chooser:
        return Chooser(
            evidence, Costs(self.build_cost, self.launch_cost, frozenset(self._built)), self.confidence
        )

    def posterior(self) -> CommitPosterior:
        """Probability of a step at each commit, and of the hypotheses without a single step."""
        if self._evidence is None:
            even = 1.0 / self.n_commits
            return CommitPosterior((0.0, *[even] * self.n_commits), 0.0, 0.0, 0.0)
        posterior = self._evidence.posterior
        commits = np.clip(self._evidence.per_commit(posterior.gaps()), 0.0, 1.0)
        none = posterior.none + float(posterior.hidden_gaps.sum())
        return CommitPosterior(tuple(commits.tolist()), none, posterior.several, posterior.reversed)

    def expected_cost(self) -> float:
        """About what is still to be spent, in the unit of the costs given; 0 when finished."""
        if self._finished() is not None:
            return 0.0
        if self._evidence is None:
            return self.build_cost * (math.log2(self.n_commits + 1) + 2.0) + 12.0 * self.launch_cost
        return self._chooser(self._evidence).expected_cost()

    @property
    def answer(self) -> Answer:
        """The present answer; ``running`` until ``next`` is empty."""
        best = max(self.posterior().commits)
        verdict = self._finished() or Verdict("running", (), best, "the search goes on")
        launches = sum(len(values) for values in self._raw.values())
        probability = min(verdict.probability, 1.0)
        return Answer(verdict.kind, verdict.commits, probability, launches, self._cost, verdict.reason)

    def _finished(self) -> Verdict | None:
        ends = self._ends()
        if ends is None or ends[0] == ends[1]:
            return Verdict("inconclusive", (), 0.0, "fewer than two commits of the range could be built")
        spent = self._cost >= self.max_cost
        if self._evidence is None:
            reason = "the budget was spent before both ends were measured"
            return Verdict("inconclusive", (), 0.0, reason) if spent else None
        share = RISK_SHARE if self._history.size >= MINIMUM_HISTORY else RISK_SHARE_WITHOUT_HISTORY
        level = 1.0 - (1.0 - self.confidence) * share
        judge = Judge(self._evidence, self.confidence, level, self._at_bad_level(self._evidence))
        return judge.decide() or (judge.spent() if spent else None)

    def _at_bad_level(self, evidence: Evidence) -> bool:
        """Whether all launches lie nearer to the history's level plus the step than to the history's level."""
        if self._history.size < MINIMUM_HISTORY or evidence.counted:
            return False
        history = to_scale(self._history, self.response, self._sign)
        step, values = self._step(evidence.ends), evidence.data.values
        moved = float(np.median(values) - np.median(history))
        spread = float(np.std(history)) / math.sqrt(values.size)
        return abs(moved - step) < 0.3 * step and moved > 4.0 * spread


def _history_fits(history: Floats, data: Data) -> bool:
    """Whether the search's own residuals could come from the history (two-sample Kolmogorov-Smirnov)."""
    if history.size < KERNEL_LAUNCHES:
        return False
    own = data.residuals()
    return own.size >= 8 and bool(ks_2samp(own, history - np.median(history)).pvalue > 0.05)
