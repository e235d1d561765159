"""One state of the search: the posterior with the launches and the structure of the range that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from perfdb.stats import bisect_verify as verify
from perfdb.stats.bisect_likelihood import Data, Floats
from perfdb.stats.bisect_model import CountModel, LevelModel
from perfdb.stats.bisect_posterior import Posterior

NAMING = 0.85  # a name this probable is worth launches of its own


@dataclass(frozen=True)
class Name:
    """A step confined to the commits after ``before`` up to ``after``, of which none in between can be tested."""

    before: int
    after: int
    probability: float

    @property
    def commits(self) -> tuple[int, ...]:
        return tuple(range(self.before + 1, self.after + 1))


@dataclass(frozen=True)
class Evidence:
    """``launches`` are on the working scale, the sought step going up; ``ends`` are the outermost usable commits.

    ``counted``: launches only pass or fail. ``pairs``: the names that came up, with the launches they had then.
    """

    n_commits: int
    ends: tuple[int, int]
    broken: frozenset[int]
    launches: Mapping[int, list[float]]
    counted: bool
    model: LevelModel | CountModel
    data: Data
    posterior: Posterior
    pairs: Mapping[tuple[int, int], verify.Pair]

    def testable(self, before: int, after: int) -> list[int]:
        """Commits strictly between, not known to be unbuildable."""
        return [c for c in range(before + 1, after) if c not in self.broken]

    def gap_names(self, probabilities: Floats) -> list[Name]:
        """Gaps between sampled commits that cannot be split further."""
        commits = self.data.commits.tolist()
        return [
            Name(a, b, float(p))
            for a, b, p in zip(commits, commits[1:], probabilities, strict=False)
            if not self.testable(a, b)
        ]

    def names(self) -> list[Name]:
        """Steps probable enough to be verified."""
        posterior = self.posterior
        if posterior.several < 0.5:
            names = self.gap_names(posterior.gaps())
            return [name for name in names if name.probability >= NAMING]
        rising = np.diff(posterior.several_levels) > 0
        names = self.gap_names(np.where(rising, posterior.several_gaps, 0.0))
        return [name for name in names if name.probability >= NAMING]

    def unsplit_wide_gap(self) -> int | None:
        """Middle of a gap of more than half the range that has no step in it: nobody looked there."""
        commits = self.data.commits.tolist()
        for a, b, p in zip(commits, commits[1:], self.posterior.gaps(), strict=False):
            testable = self.testable(a, b)
            if p < 0.5 and testable and b - a > self.n_commits / 2:
                return testable[len(testable) // 2]
        return None

    def unseen(self) -> int | None:
        """Middle of the widest gap of more than a quarter of the range: a rise and a return could hide there."""
        commits = self.data.commits.tolist()
        gaps = [(b - a, self.testable(a, b)) for a, b in pairwise(commits)]
        width, testable = max((gap for gap in gaps if gap[1]), default=(0, []))
        if width <= max(self.n_commits / 4, 1):
            return None
        return testable[len(testable) // 2]

    def verified(self, name: Name) -> bool:
        pair = self.pairs.get((name.before, name.after))
        if pair is None:
            return False
        launches = self.launches
        if self.counted:
            before, after = launches.get(pair.before, []), launches.get(pair.after, [])
            return verify.separated(before, after)
        zoom = self.posterior.zoom
        step = zoom.right - zoom.left
        if self.posterior.several >= 0.5:
            j = int(np.searchsorted(self.data.commits, name.before))
            step = float(self.posterior.several_levels[j + 1] - self.posterior.several_levels[j])
        return verify.verified(pair, launches, step, zoom.noise_sd)

    @cached_property
    def elevated(self) -> Floats:
        """Probability of each commit to be at the new level, over all hypotheses."""
        posterior, data = self.posterior, self.data
        at = np.arange(self.n_commits + 1)
        one = np.cumsum(self.per_commit(posterior.one_gaps))
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

    def per_commit(self, gaps: Floats) -> Floats:
        """Spread the probability of each gap evenly over its commits: an array over 0..N."""
        result = np.zeros(self.n_commits + 1)
        for a, b, p in zip(self.data.commits, self.data.commits[1:], gaps, strict=False):
            result[a + 1 : b + 1] = p / float(b - a)
        return result

    @cached_property
    def side_launches(self) -> tuple[float, float]:
        """Launches on commits whose side is clear (probability over .85), left and right."""
        elevated = self.elevated[self.data.commits]
        left = float(self.data.counts[elevated < 0.15].sum())
        right = float(self.data.counts[elevated > 0.85].sum())
        return max(left, 1.0), max(right, 1.0)

    @cached_property
    def signal(self) -> tuple[float, float]:
        """The step in noise sds, and the variance that unknown levels add to a comparison."""
        n_left, n_right = self.side_launches
        s = self.model.signal(self.posterior.zoom)
        if self.posterior.one < 0.5:
            return max(s, self.model.alert_signal(self.posterior.zoom)), 1.0 / n_left
        return s, 0.25 * (1.0 / n_left + 1.0 / n_right)

    def entropy(self) -> float:
        """Bits still missing: of the position and of none."""
        p = np.append(self.per_commit(self.posterior.gaps())[1:], self.posterior.none)
        p = p[p > 1e-12]
        p = p / p.sum()
        return float(-(p * np.log2(p)).sum())
