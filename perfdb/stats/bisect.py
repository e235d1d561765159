"""Find the first bad commit under noise: a Bayesian search with a stated probability.

Commits are numbered from 0, the good end, to ``n_commits``, the bad end; commit c is the culprit when its parent c - 1
is still at the old level and c is at the new one. See docs/bisection.md for the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from perfdb.stats import bisect_planning as planning
from perfdb.stats import bisect_verify as verify
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
from perfdb.stats.bisect_posterior import Posterior

Kind = Literal[
    "culprit", "range", "several", "not_reproduced", "recovered", "outside", "inconclusive", "running"
]

END_LAUNCHES = 1  # at first; more while the ends are in doubt
END_LAUNCHES_WITHOUT_HISTORY = 2
DEFAULT_MAX_COST = 600.0  # in launches
END_DOUBT = 0.03  # while no step at all is likelier than this, the ends are launched
NAMING = 0.85  # a name this probable is worth launches of its own
NAMING_SHARE = 0.4
BUILD_WEIGHT = 0.2  # of a build's cost in planning: what is built serves later probes too, which greed cannot see
LOT = 0.34  # share of the best batch that is launched before deciding again
SEVERAL_DOUBT = 0.1  # more than this speaks against a single culprit
MINIMUM_HISTORY = 5


@dataclass(frozen=True)
class Probe:
    """Launch ``commit`` ``launches`` times."""

    commit: int
    launches: int


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


@dataclass(frozen=True)
class _Name:
    """A step confined to the commits after ``before`` up to ``after``, of which none in between can be tested."""

    before: int
    after: int
    probability: float

    @property
    def commits(self) -> tuple[int, ...]:
        return tuple(range(self.before + 1, self.after + 1))


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
        self._posterior: Posterior | None = None
        self._data: Data | None = None

    # -- observing -------------------------------------------------------------------------------------------------

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
        self._posterior = None
        if self._ends_done() and self._ends is not None and self._ends[0] < self._ends[1]:
            self._data = collect(self._scaled())
            self._posterior = self._choose_model().posterior(
                self._data, np.diff(self._data.commits), self.n_commits
            )
            for name in self._names():
                key = (name.before, name.after)
                if key not in self._pairs:
                    counts = [len(self._raw.get(commit, [])) for commit in key]
                    self._pairs[key] = verify.Pair(*key, *counts)

    def _scaled(self) -> dict[int, list[float]]:
        """Launches on the working scale, the sought step going up."""
        values = np.asarray([value for launches in self._raw.values() for value in launches])
        if self._counts():
            scaled = values if self._sign > 0 else 1.0 - values
        else:
            scaled = without_infinity(to_scale(values, self.response, self._sign), self._step())
        result, start = {}, 0
        for commit, launches in self._raw.items():
            result[commit] = scaled[start : start + len(launches)].tolist()
            start += len(launches)
        return result

    def _counts(self) -> bool:
        return counts_only([value for launches in self._raw.values() for value in launches], self.response)

    def _step(self) -> float:
        good = self._raw.get(self._ends[0], []) if self._ends else []
        return expected_step(self.alert_ratio, self.response, float(np.median(good)) if good else 0.0)

    def _choose_model(self) -> LevelModel | CountModel:
        if self._counts():
            if not isinstance(self._model, CountModel):
                self._model = CountModel()
            return self._model
        step = self._step()
        laws = self._noise_laws(step)
        prior = StepPrior(step, 0.4 if self.response == "level" else 0.8)
        if not isinstance(self._model, LevelModel):
            self._model = LevelModel(prior, laws)
        self._model.prior, self._model.laws = prior, laws
        return self._model

    def _noise_laws(self, step: float) -> NoiseLaws:
        if self._history.size < MINIMUM_HISTORY:
            return laws_without_history(step)
        history = to_scale(self._history, self.response, self._sign)
        key = (step, self._history_fits(history))
        if key not in self._laws:
            self._laws[key] = laws_from_history(history, step, trusted=key[1])
        return self._laws[key]

    def _history_fits(self, history: Floats) -> bool:
        """Whether this search's own residuals could come from the history (two-sample Kolmogorov-Smirnov)."""
        if self._data is None or history.size < KERNEL_LAUNCHES:
            return False
        own = self._data.residuals()
        return own.size >= 8 and bool(ks_2samp(own, history - np.median(history)).pvalue > 0.05)

    # -- structure of the range --------------------------------------------------------------------------------------

    @property
    def _ends(self) -> tuple[int, int] | None:
        """The outermost commits not known to be unbuildable, or None where all are."""
        usable = [c for c in range(self.n_commits + 1) if c not in self._broken]
        return (usable[0], usable[-1]) if usable else None

    def _ends_done(self) -> bool:
        ends = self._ends
        return ends is not None and all(len(self._raw.get(end, [])) >= self._end_launches for end in ends)

    def _testable(self, before: int, after: int) -> list[int]:
        """Commits strictly between, not known to be unbuildable."""
        return [c for c in range(before + 1, after) if c not in self._broken]

    def _gap_names(self, probabilities: Floats) -> list[_Name]:
        """Gaps between sampled commits that cannot be split further."""
        assert self._data is not None
        commits = self._data.commits.tolist()
        return [
            _Name(a, b, float(p))
            for a, b, p in zip(commits, commits[1:], probabilities, strict=False)
            if not self._testable(a, b)
        ]

    def _names(self) -> list[_Name]:
        """Steps probable enough to be verified."""
        posterior = self._posterior
        if posterior is None:
            return []
        if posterior.several < 0.5:
            names = self._gap_names(posterior.gaps())
            return [name for name in names if name.probability >= NAMING]
        rising = np.diff(posterior.several_levels) > 0
        names = self._gap_names(np.where(rising, posterior.several_gaps, 0.0))
        return [name for name in names if name.probability >= NAMING]

    def _unsplit_wide_gap(self) -> int | None:
        """Middle of a gap of more than half the range that has no step in it: nobody looked there."""
        assert self._data is not None and self._posterior is not None
        commits = self._data.commits.tolist()
        for a, b, p in zip(commits, commits[1:], self._posterior.gaps(), strict=False):
            testable = self._testable(a, b)
            if p < 0.5 and testable and b - a > self.n_commits / 2:
                return testable[len(testable) // 2]
        return None

    # -- planning ----------------------------------------------------------------------------------------------------

    def next(self, k: int = 1) -> list[Probe]:
        """The next probes, at most ``k`` at once; empty when finished. Asking changes nothing."""
        if k < 1:
            raise ValueError(f"k is {k}: at least one probe")
        if self._finished() is not None:
            return []
        if self._posterior is None:
            return self._next_ends(k)
        several = self._posterior.several
        if several > SEVERAL_DOUBT and several < self.confidence:
            return self._next_informative(k)
        wide = self._unsplit_wide_gap() if self._names() else None
        if wide is not None:
            return [Probe(wide, 1)]
        for name in self._names():
            if not self._verified(name):
                pair = self._pairs[(name.before, name.after)]
                return [Probe(r.commit, r.launches) for r in verify.requests(pair, self._raw, k)]
        return self._next_informative(k)

    def _next_ends(self, k: int) -> list[Probe]:
        """Both ends, in the order A B (B A) for a single worker."""
        ends = self._ends
        assert ends is not None
        good, bad = (len(self._raw.get(end, [])) for end in ends)
        if k > 1:
            pairs = ((ends[0], self._end_launches - good), (ends[1], self._end_launches - bad))
            return [Probe(end, count) for end, count in pairs if count > 0]
        if good == 0:
            return [Probe(ends[0], 1)]
        if bad < self._end_launches:
            return [Probe(ends[1], self._end_launches - bad)]
        return [Probe(ends[0], self._end_launches - good)]

    def _next_informative(self, k: int) -> list[Probe]:
        assert self._posterior is not None and self._data is not None
        if self._posterior.several > 0.5:
            split = self._next_of_several()
            if split is not None:
                return [split]
        if self._ends_in_doubt():
            return self._next_at_ends(k)
        if self._posterior.one <= 1.0 - self.confidence:
            unseen = self._unseen()
            if unseen is not None:
                return [Probe(unseen, self._launches_to_tell())]
        candidates = self._candidates()
        s, variance = self._signal()
        if k > 1 and self._posterior.several < 0.5:
            positions = np.asarray(self.posterior().commits)
            positions[0] = self._posterior.none + float(self._posterior.hidden_gaps.sum()) + 1e-9
            picks = planning.best_batch(candidates, positions, s, variance, self.launch_cost, k)
        else:
            picks = [self._single(candidates, s, variance)]
        return [Probe(p.commit, max(1, round(p.launches * LOT))) for p in picks if p.bits_per_cost > 0]

    def _next_of_several(self) -> Probe | None:
        """Split the widest gap that holds a rise, or launch beside a gap of which that is not sure."""
        posterior, data = self._posterior, self._data
        assert posterior is not None and data is not None
        commits, rises = data.commits.tolist(), np.diff(posterior.several_levels)
        noise = posterior.zoom.noise_sd
        sure = [j for j in range(rises.size) if posterior.several_gaps[j] >= NAMING and rises[j] > 0]
        for j in sorted(sure, key=lambda j: commits[j] - commits[j + 1]):
            testable = self._testable(commits[j], commits[j + 1])
            if testable:
                lot = math.ceil(2.0 * (noise / rises[j]) ** 2)
                return Probe(testable[len(testable) // 2], min(max(lot, 1), 8))
        unsure = [j for j in range(rises.size) if 1.0 - NAMING < posterior.several_gaps[j] < NAMING]
        if not unsure:
            return None
        sides = {side for j in unsure for side in (j, j + 1)}
        return Probe(commits[min(sides, key=lambda j: (data.counts[j], j))], 1)

    def _ends_in_doubt(self) -> bool:
        """Whether a step between the ends is still disputed: one of either answer would do."""
        assert self._posterior is not None
        step = self._posterior.one + self._posterior.reversed
        return self._posterior.none > END_DOUBT and step > 1.0 - self.confidence

    def _next_at_ends(self, k: int) -> list[Probe]:
        """The end with fewer launches, or both for more workers; in larger lots the longer it takes."""
        ends = self._ends
        assert ends is not None
        good, bad = (len(self._raw[end]) for end in ends)
        if k > 1:
            lot = max(1, (good + bad) // 8)
            return [Probe(ends[0], lot + max(bad - good, 0)), Probe(ends[1], lot + max(good - bad, 0))]
        lot = max(1, (good + bad) // 12)
        return [Probe(ends[0] if good <= bad else ends[1], max(lot, abs(good - bad)))]

    def _unseen(self) -> int | None:
        """Middle of the widest gap of more than a quarter of the range: a rise and a return could hide there."""
        assert self._data is not None
        commits = self._data.commits.tolist()
        gaps = [(b - a, self._testable(a, b)) for a, b in pairwise(commits)]
        width, testable = max((gap for gap in gaps if gap[1]), default=(0, []))
        if width <= max(self.n_commits / 4, 1):
            return None
        return testable[len(testable) // 2]

    def _launches_to_tell(self) -> int:
        """Launches of one commit that tell the alert's size from nothing, levels being known: 6 / s^2."""
        s, _ = self._signal()
        return int(min(max(math.ceil(6.0 / s**2), 1), 12))

    def _single(self, candidates: planning.Candidates, s: float, variance: float) -> planning.Choice:
        """Best probe for one worker. A launch at an end is worth what it saves later, by better known levels."""
        choice = planning.best(planning.score(candidates, s, variance, self.launch_cost))
        if choice.bits_per_cost <= 0:
            return self._refresh()
        return self._end_instead(candidates, choice, s) or choice

    def _end_instead(
        self, candidates: planning.Candidates, choice: planning.Choice, s: float
    ) -> planning.Choice | None:
        ends = self._ends
        assert ends is not None
        n_left, n_right = self._side_launches()
        bits = self._entropy()
        end = ends[0] if n_left <= n_right else ends[1]
        more = (n_left + 1, n_right) if n_left <= n_right else (n_left, n_right + 1)
        variance = 0.25 * (1.0 / more[0] + 1.0 / more[1])
        better = planning.best(planning.score(candidates, s, variance, self.launch_cost)).bits_per_cost
        saved = bits / choice.bits_per_cost - bits / max(better, 1e-9)
        if saved > self.launch_cost:
            return planning.Choice(end, 1, choice.bits_per_cost)
        return None

    def _refresh(self) -> planning.Choice:
        """No probe tells anything by the model: launch again where the fewest launches stand."""
        assert self._data is not None
        return planning.Choice(int(self._data.commits[int(np.argmin(self._data.counts))]), 1, 1e-9)

    def _candidates(self) -> planning.Candidates:
        size = self.n_commits + 1
        launches, build = np.zeros(size), np.full(size, BUILD_WEIGHT * self.build_cost)
        for commit, values in self._raw.items():
            launches[commit] = len(values)
        build[list(self._built)] = 0.0
        tried = sorted(self._raw)
        buildable = planning.buildable_probability(tried, sorted(self._broken), self.n_commits)
        ends = self._ends
        assert ends is not None
        buildable[: ends[0]] = 0.0
        buildable[ends[1] + 1 :] = 0.0
        return planning.Candidates(self._elevated(), launches, build, buildable)

    def _elevated(self) -> Floats:
        """Probability of each commit to be at the new level, over all hypotheses."""
        posterior, data = self._posterior, self._data
        assert posterior is not None and data is not None
        at = np.arange(self.n_commits + 1)
        one = np.cumsum(self._per_commit(posterior.one_gaps))
        first = posterior.several_levels[0]
        middle = first + 0.5 * max(posterior.step, 0.0)
        z = (posterior.several_levels - middle) / np.maximum(posterior.several_sds, 1e-9)
        raised = 1.0 / (1.0 + np.exp(-np.clip(1.7 * z, -50, 50)))
        several = posterior.several * np.interp(at, data.commits, raised)
        hidden = np.zeros(at.size)
        for a, b, p in zip(data.commits, data.commits[1:], posterior.hidden_gaps, strict=False):
            x = (at[a : b + 1] - a) / float(b - a)
            hidden[a : b + 1] += p * 2.0 * x * (1.0 - x)
        return np.asarray(np.clip(one + several + hidden, 0.0, 1.0))

    def _per_commit(self, gaps: Floats) -> Floats:
        """Spread the probability of each gap evenly over its commits: an array over 0..N."""
        assert self._data is not None
        result = np.zeros(self.n_commits + 1)
        for a, b, p in zip(self._data.commits, self._data.commits[1:], gaps, strict=False):
            result[a + 1 : b + 1] = p / float(b - a)
        return result

    def _side_launches(self) -> tuple[float, float]:
        """Launches on commits whose side is clear (probability over .85), left and right."""
        assert self._data is not None
        elevated = self._elevated()[self._data.commits]
        left = float(self._data.counts[elevated < 0.15].sum())
        right = float(self._data.counts[elevated > 0.85].sum())
        return max(left, 1.0), max(right, 1.0)

    def _signal(self) -> tuple[float, float]:
        """The step in noise sds, and the variance that unknown levels add to a comparison."""
        assert self._posterior is not None and self._model is not None
        n_left, n_right = self._side_launches()
        s = self._model.signal(self._posterior.zoom)
        if self._posterior.one < 0.5:
            return max(s, self._model.alert_signal(self._posterior.zoom)), 1.0 / n_left
        return s, 0.25 * (1.0 / n_left + 1.0 / n_right)

    def _entropy(self) -> float:
        """Bits still missing: of the position and of none."""
        assert self._posterior is not None
        p = np.append(self._per_commit(self._posterior.gaps())[1:], self._posterior.none)
        p = p[p > 1e-12]
        p = p / p.sum()
        return float(-(p * np.log2(p)).sum())

    # -- answering ---------------------------------------------------------------------------------------------------

    def posterior(self) -> CommitPosterior:
        """Probability of a step at each commit, and of the hypotheses without a single step."""
        if self._posterior is None:
            even = 1.0 / self.n_commits
            return CommitPosterior((0.0, *[even] * self.n_commits), 0.0, 0.0, 0.0)
        commits = np.clip(self._per_commit(self._posterior.gaps()), 0.0, 1.0)
        return CommitPosterior(
            tuple(commits.tolist()), self._posterior.none, self._posterior.several, self._posterior.reversed
        )

    def expected_cost(self) -> float:
        """About what is still to be spent: missing bits at the present rate, and the verification."""
        if self._finished() is not None:
            return 0.0
        builds = self.build_cost * math.log2(self.n_commits + 1)
        if self._posterior is None:
            return builds + 12.0 * self.launch_cost + 2.0 * self.build_cost
        s, variance = self._signal()
        choice = planning.best(planning.score(self._candidates(), s, variance, self.launch_cost))
        pair = 2.0 * max(verify.FRESH_MINIMUM, 4.0 * verify.FRESH_LOG_ODDS / max(s, 0.1) ** 2)
        return self._entropy() / max(choice.bits_per_cost, 1e-3) + pair * self.launch_cost

    @property
    def answer(self) -> Answer:
        """The present answer; ``running`` until ``next`` is empty."""
        finished = self._finished()
        if finished is not None:
            return finished
        best = max(self.posterior().commits)
        return self._answer("running", (), best, "the search goes on")

    def _answer(self, kind: Kind, commits: tuple[int, ...], probability: float, reason: str) -> Answer:
        launches = sum(len(values) for values in self._raw.values())
        return Answer(kind, commits, min(probability, 1.0), launches, self._cost, reason)

    def _finished(self) -> Answer | None:
        ends = self._ends
        if ends is None or ends[0] == ends[1]:
            return self._answer("inconclusive", (), 0.0, "fewer than two commits of the range could be built")
        if self._posterior is not None:
            decided = self._decide(self._posterior)
            if decided is not None:
                return decided
        if self._cost >= self.max_cost:
            return self._spent()
        return None

    def _decide(self, posterior: Posterior) -> Answer | None:
        if posterior.reversed >= self.confidence:
            reason = "the ends are reversed: the step goes the other way than the alert"
            return self._answer("not_reproduced", (), posterior.reversed, reason)
        if posterior.none + posterior.hidden_gaps.sum() >= self.confidence and self._unseen() is None:
            return self._no_step(posterior)
        if posterior.several >= self.confidence:
            return self._several(posterior)
        if posterior.several > SEVERAL_DOUBT:
            return None
        names = self._names()
        if len(names) != 1 or self._unsplit_wide_gap() is not None:
            return None
        name = names[0]
        if name.probability < self._naming_level() or not self._verified(name):
            return None
        if len(name.commits) == 1:
            return self._answer(
                "culprit", name.commits, name.probability, f"commit {name.after} is the first bad one"
            )
        hidden = "the commits between could not be built"
        return self._answer("range", name.commits, name.probability, hidden)

    def _naming_level(self) -> float:
        """Stricter than what is stated, because the noise laws are only assumed; most where no history backs them."""
        share = NAMING_SHARE if self._history.size >= MINIMUM_HISTORY else 0.2
        return 1.0 - (1.0 - self.confidence) * share

    def _verified(self, name: _Name) -> bool:
        pair = self._pairs.get((name.before, name.after))
        if pair is None or self._posterior is None or self._model is None:
            return False
        launches = self._scaled()
        if self._counts():
            before, after = launches.get(pair.before, []), launches.get(pair.after, [])
            return verify.separated(before, after)
        zoom = self._posterior.zoom
        step = zoom.right - zoom.left
        if self._posterior.several >= 0.5:
            data = self._data
            assert data is not None
            j = int(np.searchsorted(data.commits, name.before))
            step = float(self._posterior.several_levels[j + 1] - self._posterior.several_levels[j])
        return verify.verified(pair, launches, step, zoom.noise_sd)

    def _no_step(self, posterior: Posterior) -> Answer:
        ends = self._ends
        assert ends is not None
        if ends != (0, self.n_commits):
            missing = " and ".join(
                word for word, moved in (("good", ends[0] > 0), ("bad", ends[1] < self.n_commits)) if moved
            )
            reason = f"the {missing} end cannot be built and no step lies between {ends[0]} and {ends[1]}: move it outward"
            return self._answer("outside", (), posterior.none, reason)
        if self._at_bad_level():
            reason = "both ends are at the bad level: the step came before the range"
            return self._answer("outside", (), posterior.none, reason)
        return self._answer(
            "not_reproduced", (), posterior.none, "both ends and the commits between are at one level"
        )

    def _at_bad_level(self) -> bool:
        """Whether all launches lie nearer to the history's level plus the step than to the history's level."""
        if self._history.size < MINIMUM_HISTORY or self._counts():
            return False
        history = to_scale(self._history, self.response, self._sign)
        assert self._data is not None
        moved = float(np.median(self._data.values) - np.median(history))
        spread = float(np.std(history)) / math.sqrt(self._data.values.size)
        return abs(moved - self._step()) < 0.3 * self._step() and moved > 4.0 * spread

    def _several(self, posterior: Posterior) -> Answer | None:
        assert self._data is not None
        rises = np.diff(posterior.several_levels)
        likely = posterior.several_gaps >= 0.5
        up = [j for j in np.flatnonzero(likely) if rises[j] > 0]
        down = [j for j in np.flatnonzero(likely) if rises[j] < 0]
        if not up:
            return None
        largest = float(max(rises[j] for j in up))
        net = float(posterior.several_levels[-1] - posterior.several_levels[0])
        spans = [(int(self._data.commits[j]), int(self._data.commits[j + 1])) for j in (*up, *down)]
        if len(up) == 1 and down and abs(net) < 0.35 * largest:
            commits = tuple(sorted({c for a, b in spans for c in range(a + 1, b + 1)}))
            (a, b), (c, d) = spans[0], spans[1]
            reason = f"the level rose in {a + 1}..{b} and came back in {c + 1}..{d}"
            return self._answer("recovered", commits, posterior.several, reason)
        names = self._names()
        if len(names) < len(up) or not all(self._verified(name) for name in names):
            return None
        probability = min(posterior.several, *(name.probability for name in names))
        if probability < self.confidence:
            return None
        improved = [f"{a + 1}..{b}" if b > a + 1 else str(b) for a, b in spans[len(up) :]]
        tail = f"; improved again at {', '.join(improved)}" if improved else ""
        commits = tuple(sorted({c for name in names for c in name.commits}))
        if len(names) == 1:
            kind: Kind = "culprit" if len(commits) == 1 else "range"
            return self._answer(kind, commits, probability, f"the level rose at {names[0].after}{tail}")
        return self._answer("several", commits, probability, f"{len(names)} steps{tail}")

    def _spent(self) -> Answer:
        """The budget is gone: the smallest run of commits that holds the step with the wanted confidence."""
        if self._posterior is None:
            return self._answer(
                "inconclusive", (), 0.0, "the budget was spent before both ends were measured"
            )
        step = self._per_commit(self._posterior.gaps())
        commits = _smallest_run(step, self.confidence)
        reason = f"the budget was spent; a step is {step.sum():.0%} likely"
        return self._answer("inconclusive", commits, float(step[list(commits)].sum()), reason)


def _smallest_run(probabilities: NDArray[np.float64], confidence: float) -> tuple[int, ...]:
    """Shortest run of commits with that much of the probability of a step, or none where a step is unlikely."""
    total = np.cumsum(probabilities)
    if total[-1] < 0.5:
        return ()
    wanted = confidence * total[-1]
    ends = np.searchsorted(total, np.concatenate([[0.0], total[:-1]]) + wanted - 1e-12)
    lengths = np.where(ends < total.size, ends - np.arange(total.size), total.size)
    start = int(np.argmin(lengths))
    return tuple(range(start, int(ends[start]) + 1))
