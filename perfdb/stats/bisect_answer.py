"""When a search is finished and what it may say then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfdb.stats.bisect_choose import SEVERAL_DOUBT
from perfdb.stats.bisect_evidence import Evidence
from perfdb.stats.bisect_likelihood import Floats
from perfdb.stats.bisect_posterior import Posterior

Kind = Literal[
    "culprit", "range", "several", "not_reproduced", "recovered", "outside", "inconclusive", "running"
]
RETURNED = 0.35  # of the largest rise: a smaller net change has come back


@dataclass(frozen=True)
class Verdict:
    """An answer without what it cost."""

    kind: Kind
    commits: tuple[int, ...]
    probability: float
    reason: str


@dataclass(frozen=True)
class Judge:
    """``naming_level``: probability a name needs; ``at_bad_level``: all launches lie a step above the history."""

    evidence: Evidence
    confidence: float
    naming_level: float
    at_bad_level: bool

    def decide(self) -> Verdict | None:
        """The final verdict, or None while the search should go on."""
        posterior = self.evidence.posterior
        if posterior.reversed >= self.confidence:
            reason = "the ends are reversed: the step goes the other way than the alert"
            return Verdict("not_reproduced", (), posterior.reversed, reason)
        if posterior.none + posterior.hidden_gaps.sum() >= self.confidence and self.evidence.unseen() is None:
            return self._no_step(posterior)
        if posterior.several >= self.confidence:
            return self._several(posterior)
        if posterior.several > SEVERAL_DOUBT:
            return None
        names = self.evidence.names()
        if len(names) != 1 or self.evidence.unsplit_wide_gap() is not None:
            return None
        name = names[0]
        if name.probability < self.naming_level or not self.evidence.verified(name):
            return None
        if len(name.commits) == 1:
            return Verdict(
                "culprit", name.commits, name.probability, f"commit {name.after} is the first bad one"
            )
        hidden = "the commits between could not be built"
        return Verdict("range", name.commits, name.probability, hidden)

    def _no_step(self, posterior: Posterior) -> Verdict:
        ends = self.evidence.ends
        if ends != (0, self.evidence.n_commits):
            missing = " and ".join(
                word
                for word, moved in (("good", ends[0] > 0), ("bad", ends[1] < self.evidence.n_commits))
                if moved
            )
            between = f"no step lies between {ends[0]} and {ends[1]}"
            reason = f"the {missing} end cannot be built and {between}: move it outward"
            return Verdict("outside", (), posterior.none, reason)
        if self.at_bad_level:
            reason = "both ends are at the bad level: the step came before the range"
            return Verdict("outside", (), posterior.none, reason)
        return Verdict(
            "not_reproduced", (), posterior.none, "both ends and the commits between are at one level"
        )

    def _several(self, posterior: Posterior) -> Verdict | None:
        rises = np.diff(posterior.several_levels)
        likely = posterior.several_gaps >= 0.5
        up = [j for j in np.flatnonzero(likely) if rises[j] > 0]
        down = [j for j in np.flatnonzero(likely) if rises[j] < 0]
        if not up:
            return None
        largest = float(max(rises[j] for j in up))
        net = float(posterior.several_levels[-1] - posterior.several_levels[0])
        spans = [
            (int(self.evidence.data.commits[j]), int(self.evidence.data.commits[j + 1])) for j in (*up, *down)
        ]
        if len(up) == 1 and down and abs(net) < 0.35 * largest:
            commits = tuple(sorted({c for a, b in spans for c in range(a + 1, b + 1)}))
            (a, b), (c, d) = spans[0], spans[1]
            reason = f"the level rose in {a + 1}..{b} and came back in {c + 1}..{d}"
            return Verdict("recovered", commits, posterior.several, reason)
        names = self.evidence.names()
        if len(names) < len(up) or not all(self.evidence.verified(name) for name in names):
            return None
        probability = min(posterior.several, *(name.probability for name in names))
        if probability < self.confidence:
            return None
        improved = [f"{a + 1}..{b}" if b > a + 1 else str(b) for a, b in spans[len(up) :]]
        tail = f"; improved again at {', '.join(improved)}" if improved else ""
        commits = tuple(sorted({c for name in names for c in name.commits}))
        if len(names) == 1:
            kind: Kind = "culprit" if len(commits) == 1 else "range"
            return Verdict(kind, commits, probability, f"the level rose at {names[0].after}{tail}")
        return Verdict("several", commits, probability, f"{len(names)} steps{tail}")

    def spent(self) -> Verdict:
        """The budget is gone: the smallest run of commits that holds the step with the wanted confidence."""
        step = self.evidence.per_commit(self.evidence.posterior.gaps())
        commits = _smallest_run(step, self.confidence)
        reason = f"the budget was spent; a step is {step.sum():.0%} likely"
        return Verdict("inconclusive", commits, float(step[list(commits)].sum()), reason)


def _smallest_run(probabilities: Floats, confidence: float) -> tuple[int, ...]:
    """Shortest run of commits with that much of the probability of a step, or none where a step is unlikely."""
    total = np.cumsum(probabilities)
    if total[-1] < 0.5:
        return ()
    wanted = confidence * total[-1]
    ends = np.searchsorted(total, np.concatenate([[0.0], total[:-1]]) + wanted - 1e-12)
    lengths = np.where(ends < total.size, ends - np.arange(total.size), total.size)
    start = int(np.argmin(lengths))
    return tuple(range(start, int(ends[start]) + 1))
