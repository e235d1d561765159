"""Change points of a benchmark history: where the level of a series moved, by how much, and how sure that is.

`find_changes` reads a whole history; `ChangeTracker` is fed one commit at a time and keeps a bounded window. Neither
draws a random number. The method and its sources are in docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfdb.stats.detect.describe import Change, ChangeKind, describe
from perfdb.stats.detect.engine import Analysis, analyse, fitted_level
from perfdb.stats.detect.health import at_commits, without_suspects
from perfdb.stats.detect.history import Floats, History, Ints, join, newest, read_history
from perfdb.stats.detect.launches import commit_medians, observe
from perfdb.stats.detect.robust import median, sigma_about_zero
from perfdb.stats.detect.screen import Passing
from perfdb.stats.policy import Metric, Policy
from perfdb.stats.units import Family, family

__all__ = ["Change", "ChangeKind", "ChangeTracker", "find_changes"]


def find_changes(
    history: Sequence[Any] | NDArray[Any],
    *,
    policy: Policy | None = None,
    metric: Metric | None = None,
    suspect: Sequence[Any] | NDArray[Any] | None = None,
    sentinel: Sequence[Any] | NDArray[Any] | None = None,
) -> list[Change]:
    """Changes of one series, oldest first.

    history: one entry per commit, oldest first: None (or empty) for a gap, a number, or a list of launches, each a
    number or a list of samples in the metric's unit. Arrays of shape (commits,), (commits, launches) or (commits,
    launches, samples) are read fastest.
    suspect: per commit, or per commit a list of one entry per launch: True (or a share up to 1) where the run is known
    to have been throttled or disturbed. A fully suspect launch is left out, any other counts for that much less.
    sentinel: per commit the control benchmark's time (or launches of it), None where it did not run. Its level, noise
    taken out, is divided off, so that a drift or a step of the machine is not taken for one of the code.
    Raises ValueError naming commit index and launch for NaN, infinite and (for times, bytes, counts) negative values.
    """
    policy, metric = policy or Policy(), metric or Metric()
    read = read_history(history, allow_negative=may_be_negative(metric))
    if read.n < 2:
        return []
    weight = None
    if suspect is not None:
        trusted = without_suspects(read, suspect)
        read, weight = trusted.history, trusted.weight
        if read.n < 2:
            return []
    machine = None if sentinel is None else _machine_level(sentinel, read)
    observations = observe(read, metric, weight=weight, machine=machine)
    passing = Passing(sign=_slower(metric)) if suspect is None else None
    found = analyse(observations, deterministic=metric.deterministic, passing=passing)
    return describe(observations, found, policy)


@dataclass(frozen=True)
class _Calm:
    """What the commits since the newest jump look like, for telling an ordinary next commit."""

    middle: float
    sigma: float


class ChangeTracker:
    """`find_changes` fed one commit at a time, on a window of the newest measured commits.

    While the window holds the whole history the answer is that of `find_changes` on it, but for analyses put off: a
    commit that looks like those before it, with no jump near, is only looked at with one of the next two. When older
    commits have left the window, changes in or before its first quarter stay as they were last seen.
    watched: whether the machine's health is known (see `suspect` of `find_changes`).
    """

    _SETTLED_COMMITS = 30  # a jump younger than this is re-analysed with every commit
    _PUT_OFF_COMMITS = 2
    _CALM_COMMITS = 40
    _RULED_OUT_FOR = 6  # analyses, before a drift that was far from paying is tried again
    _CALM_SIGMA = 2.0

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        metric: Metric | None = None,
        window: int = 400,
        watched: bool = False,
    ) -> None:
        if window < 100:
            raise ValueError(f"a window of {window} commits is too short: at least 100")
        self._policy, self._metric = policy or Policy(), metric or Metric()
        self._passing = None if watched else Passing(sign=_slower(self._metric))
        self._window = window
        self._read: History | None = None
        self._weight: Floats = np.zeros(0)
        self._middles: Floats = np.zeros(0)
        self._commits = 0
        self._has_dropped = False
        self._changes: list[Change] = []
        self._calm: _Calm | None = None
        self._put_off: list[float] = []
        self._ruled_out: Ints | None = None
        self._since_ruled_out = 0

    @property
    def changes(self) -> list[Change]:
        """Changes of the commits so far, oldest first; positions count every commit that was fed, gaps too."""
        return list(self._changes)

    def append(self, commit: Any, *, suspect: Any = None) -> list[Change]:
        """Feed the next commit (None for a gap) and return `changes`. Entries and errors as in `find_changes`."""
        allow_negative = may_be_negative(self._metric)
        one = read_history([commit], allow_negative=allow_negative, first_commit=self._commits)
        weight = np.ones(int(one.start[-1]))
        if suspect is not None:
            trusted = without_suspects(one, [suspect])
            one, weight = trusted.history, trusted.weight
        self._commits += 1
        if one.n == 0:
            return self.changes
        middle = float(commit_medians(one)[0])
        self._add(replace(one, index=np.array([self._commits - 1]), length=self._commits), weight, middle)
        if self._is_ordinary(middle):
            self._put_off.append(middle)
        else:
            self._analyse()
        return self.changes

    def _add(self, one: History, weight: Floats, middle: float) -> None:
        self._read = one if self._read is None else join(self._read, one)
        if self._read.n > self._window:
            self._read = newest(self._read, self._window)
            self._has_dropped = True
        self._weight = np.append(self._weight, weight)[-int(self._read.start[-1]) :]
        self._middles = np.append(self._middles, middle)[-self._window :]

    def _is_ordinary(self, middle: float) -> bool:
        if self._calm is None or len(self._put_off) >= self._PUT_OFF_COMMITS:
            return False
        off = np.array([*self._put_off, middle]) - self._calm.middle
        limit = self._CALM_SIGMA * self._calm.sigma
        return bool(abs(off[-1]) <= limit and abs(off.sum()) <= limit * np.sqrt(len(off)))

    def _analyse(self) -> None:
        read = self._read
        if read is None or read.n < 2:
            return
        observations = observe(read, self._metric, weight=self._weight)
        found = analyse(
            observations,
            deterministic=self._metric.deterministic,
            passing=self._passing,
            ruled_out=self._ruled_out,
        )
        self._since_ruled_out = 0 if self._ruled_out is None else self._since_ruled_out + 1
        self._ruled_out = found.ruled_out if self._since_ruled_out < self._RULED_OUT_FOR else None
        changes = describe(observations, found, self._policy)
        reliable = int(read.index[read.n // 4]) if self._has_dropped else 0
        older = [change for change in self._changes if change.index < reliable]
        self._changes = older + [change for change in changes if change.index >= reliable]
        self._put_off = []
        self._calm = self._calm_since(found)

    def _calm_since(self, found: Analysis) -> _Calm | None:
        commits = len(self._middles)
        if commits - found.last_jump < self._SETTLED_COMMITS:
            return None
        recent = self._middles[max(found.last_jump, commits - self._CALM_COMMITS) :]
        middle = median(recent)
        return _Calm(middle=middle, sigma=sigma_about_zero(recent - middle))


def _machine_level(sentinel: Sequence[Any] | NDArray[Any], history: History) -> Floats | None:
    """log level of the sentinel at each measured commit, its noise taken out; None where it never ran."""
    if len(sentinel) != history.length:
        raise ValueError(f"sentinel: {len(sentinel)} entries for {history.length} commits")
    known = read_history(sentinel, allow_negative=False)
    if known.n < 2:
        return None
    observations = observe(known, Metric(name="sentinel", unit=""))
    level = fitted_level(observations)
    if not observations.is_log:
        if float(level.min()) <= 0.0:
            raise ValueError("sentinel: its level must be positive")
        level = np.log(level)
    return at_commits(level, known.index, history.index)


def may_be_negative(metric: Metric) -> bool:
    """Times, bytes, counts, rates and the like cannot be; a temperature or a value without a known unit can."""
    return family(metric.unit) in (None, Family.TEMPERATURE)


def _slower(metric: Metric) -> float:
    """Sign of a change for the worse; 0 where the direction is unknown."""
    return 0.0 if metric.lower_is_better is None else 1.0 if metric.lower_is_better else -1.0
