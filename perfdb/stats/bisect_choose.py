"""The next probes of a search, from its evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfdb.stats import bisect_planning as planning
from perfdb.stats import bisect_verify as verify
from perfdb.stats.bisect_evidence import NAMING, Evidence

END_DOUBT = 0.03  # while no step at all is likelier than this, the ends are launched
SEVERAL_DOUBT = 0.1  # more than this speaks against a single culprit
LOT = 0.34  # share of the best batch that is launched before deciding again
BATCH_LOT = 0.67  # the same for workers side by side, who wait for each other
BUILD_WEIGHT = (
    0.2  # of a build's cost in planning: what is built serves later probes too, which greed cannot see
)


@dataclass(frozen=True)
class Probe:
    """Launch ``commit`` ``launches`` times."""

    commit: int
    launches: int


@dataclass(frozen=True)
class Costs:
    """Of a build and of a launch, and the commits that are built already."""

    build: float
    launch: float
    built: frozenset[int]


@dataclass(frozen=True)
class Chooser:
    evidence: Evidence
    costs: Costs
    confidence: float

    def next(self, k: int) -> list[Probe]:
        """At most ``k`` probes that run at once, in order of use."""
        evidence = self.evidence
        if SEVERAL_DOUBT < evidence.posterior.several < self.confidence:
            return self._next_informative(k)
        names = evidence.names()
        wide = evidence.unsplit_wide_gap() if names else None
        if wide is not None:
            return [Probe(wide, 1)]
        for name in names:
            if not evidence.verified(name):
                pair = evidence.pairs[(name.before, name.after)]
                return [Probe(r.commit, r.launches) for r in verify.requests(pair, evidence.launches, k)]
        return self._next_informative(k)

    def expected_cost(self) -> float:
        """About what is still to be spent: missing bits at the present rate, the builds, and the verification."""
        s, variance = self.evidence.signal
        choice = planning.best(planning.score(self._candidates(), s, variance, self.costs.launch))
        bits = self.evidence.entropy()
        pair = 2.0 * max(verify.FRESH_MINIMUM, 4.0 * verify.FRESH_LOG_ODDS / max(s, 0.1) ** 2)
        unweighted = (1.0 - BUILD_WEIGHT) * self.costs.build * bits
        return bits / max(choice.bits_per_cost, 1e-3) + unweighted + pair * self.costs.launch

    def _next_informative(self, k: int) -> list[Probe]:
        if self.evidence.posterior.several > 0.5:
            split = self._next_of_several()
            if split is not None:
                return [split]
        if self._ends_in_doubt():
            return self._next_at_ends(k)
        if self.evidence.posterior.one <= 1.0 - self.confidence:
            unseen = self.evidence.unseen()
            if unseen is not None:
                return [Probe(unseen, self._launches_to_tell())]
        if k > 1 and self.evidence.posterior.several < 0.5:
            return self._batch(k)
        s, variance = self.evidence.signal
        pick = self._single(self._candidates(), s, variance)
        return [Probe(pick.commit, max(1, round(pick.launches * LOT)))]

    def _batch(self, k: int) -> list[Probe]:
        """Probes that run side by side. Who need not build launches more instead of waiting for those who do."""
        candidates, posterior = self._candidates(build_weight=1.0), self.evidence.posterior
        s, variance = self.evidence.signal
        positions = self.evidence.per_commit(posterior.gaps())
        positions[0] = posterior.none + float(posterior.hidden_gaps.sum()) + 1e-9
        picks = planning.best_batch(candidates, positions, s, variance, self.costs.launch, k)
        picks = [pick for pick in picks if pick.bits_per_cost > 0]
        if not picks:
            return [Probe(self._refresh().commit, 1)]
        lots = [max(1, round(pick.launches * BATCH_LOT)) for pick in picks]
        builds = [0.0 if pick.commit in self.costs.built else self.costs.build for pick in picks]
        wall = max(build + lot * self.costs.launch for build, lot in zip(builds, lots, strict=True))
        fill = [int((wall - build) / self.costs.launch) for build in builds]
        return [
            Probe(pick.commit, max(lot, min(2 * lot, room)))
            for pick, lot, room in zip(picks, lots, fill, strict=True)
        ]

    def _next_of_several(self) -> Probe | None:
        """Split the widest gap that holds a rise, or launch beside a gap of which that is not sure."""
        posterior, data = self.evidence.posterior, self.evidence.data
        commits, rises = data.commits.tolist(), np.diff(posterior.several_levels)
        noise = posterior.zoom.noise_sd
        sure = [j for j in range(rises.size) if posterior.several_gaps[j] >= NAMING and rises[j] > 0]
        for j in sorted(sure, key=lambda j: commits[j] - commits[j + 1]):
            testable = self.evidence.testable(commits[j], commits[j + 1])
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
        step = self.evidence.posterior.one + self.evidence.posterior.reversed
        return self.evidence.posterior.none > END_DOUBT and step > 1.0 - self.confidence

    def _next_at_ends(self, k: int) -> list[Probe]:
        """The end with fewer launches, or both for more workers; in larger lots the longer it takes."""
        ends = self.evidence.ends
        good, bad = (len(self.evidence.launches[end]) for end in ends)
        if k > 1:
            lot = max(2, (good + bad) // 8)
            both = [Probe(ends[0], lot + max(bad - good, 0)), Probe(ends[1], lot + max(good - bad, 0))]
            others = self._batch(k - 2) if k > 2 else []
            return both + [probe for probe in others if probe.commit not in ends]
        lot = max(1, (good + bad) // 12)
        return [Probe(ends[0] if good <= bad else ends[1], max(lot, abs(good - bad)))]

    def _launches_to_tell(self) -> int:
        """Launches of one commit that tell the alert's size from nothing, levels being known: 10 / s^2."""
        s, _ = self.evidence.signal
        return int(min(max(math.ceil(10.0 / s**2), 1), 12))

    def _single(self, candidates: planning.Candidates, s: float, variance: float) -> planning.Choice:
        """Best probe for one worker. A launch at an end is worth what it saves later, by better known levels."""
        choice = planning.best(planning.score(candidates, s, variance, self.costs.launch))
        if choice.bits_per_cost <= 0:
            return self._refresh()
        return self._end_instead(candidates, choice, s) or choice

    def _end_instead(
        self, candidates: planning.Candidates, choice: planning.Choice, s: float
    ) -> planning.Choice | None:
        ends = self.evidence.ends
        n_left, n_right = self.evidence.side_launches
        bits = self.evidence.entropy()
        end = ends[0] if n_left <= n_right else ends[1]
        more = (n_left + 1, n_right) if n_left <= n_right else (n_left, n_right + 1)
        variance = 0.25 * (1.0 / more[0] + 1.0 / more[1])
        better = planning.best(planning.score(candidates, s, variance, self.costs.launch)).bits_per_cost
        saved = bits / choice.bits_per_cost - bits / max(better, 1e-9)
        if saved > self.costs.launch:
            return planning.Choice(end, 1, choice.bits_per_cost)
        return None

    def _refresh(self) -> planning.Choice:
        """No probe tells anything by the model: launch again where the fewest launches stand."""
        return planning.Choice(
            int(self.evidence.data.commits[int(np.argmin(self.evidence.data.counts))]), 1, 1e-9
        )

    def _candidates(self, *, build_weight: float = BUILD_WEIGHT) -> planning.Candidates:
        size = self.evidence.n_commits + 1
        launches, build = np.zeros(size), np.full(size, build_weight * self.costs.build)
        for commit, values in self.evidence.launches.items():
            launches[commit] = len(values)
        build[list(self.costs.built)] = 0.0
        tried = sorted(self.evidence.launches)
        buildable = planning.buildable_probability(
            tried, sorted(self.evidence.broken), self.evidence.n_commits
        )
        ends = self.evidence.ends
        buildable[: ends[0]] = 0.0
        buildable[ends[1] + 1 :] = 0.0
        return planning.Candidates(self.evidence.elevated, launches, build, buildable)
