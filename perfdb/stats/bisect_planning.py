"""Which commit to launch next, and how often: the most information per cost.

A launch at commit i answers "is i already at the new level?" through noise. With p the probability of yes and d the
separation of the two answers in noise sds, it carries the mutual information I(p, d) of a binary input on a Gaussian
channel. Launches beside earlier ones, and levels that are known only so well, give d less than s sqrt(n): see
``separation``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from perfdb.stats.bisect_likelihood import Floats

BATCHES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48], dtype=np.float64)
P_POINTS = 65
D_MAX, D_POINTS = 8.0, 97


@dataclass(frozen=True)
class Candidates:
    """What planning needs of each commit 0..N.

    ``elevated``: probability of the new level; ``launches``: done so far; ``build``: cost of a build, 0 where one is
    cached; ``buildable``: probability that it builds, 0 where it is known not to.
    """

    elevated: Floats
    launches: Floats
    build: Floats
    buildable: Floats


@dataclass(frozen=True)
class Choice:
    commit: int
    launches: int
    bits_per_cost: float


@cache
def _information_table() -> Floats:
    p = np.linspace(0.0, 1.0, P_POINTS)[1:-1, None]
    d = np.linspace(0.0, D_MAX, D_POINTS)[None, :]
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    entropy = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    remaining = np.zeros((P_POINTS - 2, D_POINTS))
    odds = np.log(p / (1 - p))
    for node, weight in zip(nodes, weights, strict=True):
        # log odds of yes after an observation at `node` sds from the level that is true
        for sign, prior in ((1.0, p), (-1.0, 1 - p)):
            logit = sign * odds + d * node + 0.5 * d**2
            remaining += weight * prior * np.logaddexp(0.0, -logit) / np.log(2.0)
    table = np.zeros((P_POINTS, D_POINTS))
    table[1:-1] = np.clip(entropy - remaining, 0.0, None)
    return table


def information(p: Floats, d: Floats) -> Floats:
    """Bits a Gaussian measurement of separation ``d`` gives about a yes of probability ``p`` (broadcast together)."""
    table = _information_table()
    x = np.clip(p, 0.0, 1.0) * (P_POINTS - 1)
    y = np.clip(d, 0.0, D_MAX * (1 - 1e-12)) * ((D_POINTS - 1) / D_MAX)
    i, j = np.minimum(x.astype(int), P_POINTS - 2), np.minimum(y.astype(int), D_POINTS - 2)
    x, y = x - i, y - j
    low = (1 - y) * table[i, j] + y * table[i, j + 1]
    high = (1 - y) * table[i + 1, j] + y * table[i + 1, j + 1]
    return np.asarray((1 - x) * low + x * high)


def separation(launches: Floats, batch: Floats, s: float, level_variance: float) -> Floats:
    """Added separation by ``batch`` more launches where ``launches`` are done: s sqrt(prec(n + b) - prec(n)).

    prec(k) = 1 / (1 / k + v): v (``level_variance``) is what the unknown levels add, (1 / n_left + 1 / n_right) / 4.
    """
    after = 1.0 / (1.0 / (launches + batch) + level_variance)
    before = np.where(launches > 0, 1.0 / (1.0 / np.maximum(launches, 1.0) + level_variance), 0.0)
    return s * np.sqrt(np.maximum(after - before, 0.0))


def score(candidates: Candidates, s: float, level_variance: float, launch_cost: float) -> Floats:
    """Bits per cost of every commit (rows) and batch size (columns)."""
    d = separation(candidates.launches[:, None], BATCHES[None, :], s, level_variance)
    bits = information(candidates.elevated[:, None], d) * candidates.buildable[:, None]
    cost = candidates.build[:, None] + candidates.buildable[:, None] * BATCHES[None, :] * launch_cost
    return bits / np.maximum(cost, 1e-9)


def best(scores: Floats) -> Choice:
    """The largest score; of equals the first."""
    commit, batch = np.unravel_index(int(np.argmax(scores)), scores.shape)
    return Choice(int(commit), int(BATCHES[batch]), float(scores[commit, batch]))


def best_batch(
    candidates: Candidates, positions: Floats, s: float, level_variance: float, launch_cost: float, k: int
) -> list[Choice]:
    """Greedy choice for ``k`` workers that start together.

    ``positions[c]`` is the probability that the step is at commit c (index 0: no step among them). Each pick splits
    the posterior by its quantised outcome (yes or no, wrong with probability Phi(-d / 2)); the next pick is judged by
    its mean information over the outcomes of the earlier ones. All run at once, so cost is what one worker does.
    """
    total = positions / positions.sum()
    branches = total[None, :]
    chosen: list[Choice] = []
    taken = np.zeros(candidates.launches.size)
    for _ in range(k):
        mass = branches.sum(axis=1)
        elevated = np.cumsum(branches[:, 1:], axis=1) / mass[:, None]
        elevated = np.concatenate([np.zeros((mass.size, 1)), elevated], axis=1)
        d = separation(candidates.launches[:, None], BATCHES[None, :], s, level_variance)
        bits = np.tensordot(mass, information(elevated[:, :, None], d[None]), axes=1)
        bits *= candidates.buildable[:, None] * (taken == 0)[:, None]
        cost = candidates.build[:, None] + BATCHES[None, :] * launch_cost
        pick = best(bits / np.maximum(cost, 1e-9))
        chosen.append(pick)
        taken[pick.commit] = 1
        if branches.shape[0] < 32:
            branches = _split(
                branches, pick, float(d[pick.commit, int(np.searchsorted(BATCHES, pick.launches))])
            )
    return chosen


def _split(branches: Floats, pick: Choice, d: float) -> Floats:
    wrong = 0.5 * math.erfc(d / (2.0 * math.sqrt(2.0)))
    yes = np.zeros(branches.shape[1])
    yes[1 : pick.commit + 1] = 1.0
    likely = yes * (1 - wrong) + (1 - yes) * wrong
    return np.concatenate([branches * likely, branches * (1 - likely)], axis=0)


def buildable_probability(built: list[int], broken: list[int], n_commits: int) -> Floats:
    """Probability that each commit builds, from those that did and did not.

    Failures come in blocks: a two-state chain along the commits with a failing share f and a mean block length,
    averaged over three lengths by how well each explains what is known.
    """
    known = sorted([(commit, 1.0) for commit in broken] + [(commit, 0.0) for commit in built])
    result = np.zeros(n_commits + 1)
    if not broken:
        result[:] = 0.95
        for commit in built:
            result[commit] = 1.0
        return result
    share = min(0.5, (len(broken) + 0.5) / (len(known) + 5.0))
    weights, curves = [], []
    for length in (1.3, 6.0, 30.0):
        decay = max(1.0 - 1.0 / length - share / (1 - share) / length, 0.0)
        log_weight = 0.0
        for (a, x), (b, z) in itertools.pairwise(known):
            fails = share + (x - share) * decay ** (b - a)
            log_weight += float(np.log(max(fails if z else 1.0 - fails, 1e-9)))
        weights.append(log_weight)
        curves.append(_failing_curve(known, share, decay, n_commits))
    blend = np.exp(np.array(weights) - max(weights))
    failing = np.tensordot(blend / blend.sum(), np.stack(curves), axes=1)
    return np.asarray(1.0 - failing)


def _failing_curve(known: list[tuple[int, float]], share: float, decay: float, n_commits: int) -> Floats:
    """P(commit fails) given the nearest known commits on both sides of it."""
    at = np.arange(n_commits + 1)
    places = np.array([commit for commit, _ in known])
    states = np.array([state for _, state in known])
    after = np.searchsorted(places, at, side="left")
    fails, works = np.full(at.size, share), np.full(at.size, 1.0 - share)
    has_left = after > 0
    left = np.where(has_left, after - 1, 0)
    p_left = share + (states[left] - share) * decay ** np.abs(at - places[left])
    fails = np.where(has_left, p_left, fails)
    works = np.where(has_left, 1.0 - p_left, works)
    has_right = after < places.size
    right = np.where(has_right, after, 0)
    power = decay ** np.abs(places[right] - at)
    to_state_if_failing = share + (1.0 - share) * power
    to_state_if_working = share - share * power
    if_failing = np.where(states[right] > 0, to_state_if_failing, 1.0 - to_state_if_failing)
    if_working = np.where(states[right] > 0, to_state_if_working, 1.0 - to_state_if_working)
    fails = np.where(has_right, fails * if_failing, fails)
    works = np.where(has_right, works * if_working, works)
    curve = fails / np.maximum(fails + works, 1e-12)
    curve[places] = states
    return np.asarray(curve)
