"""Did the workload change? Distances between two request streams, and the part of a latency change that is mix.

A distance alone says little: two halves of one stream differ too, and arrivals come in bursts. Each distance is held
against what it would be if the time-ordered blocks of both streams were dealt out at random.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = Sequence[float] | Floats

BLOCKS = 32
"""Blocks of consecutive requests per stream: long enough to keep bursts together, enough of them to permute."""
DRAWS = 400
DEVIATIONS = 4.5
"""How many standard deviations of the permuted distance the real one must lie above their mean."""
GRID = 200
PSI_BINS = 10
LEAST_DISTANCE = 0.05
"""Largest gap between two distribution functions (or shares) that nobody needs to hear of."""
LEAST_REQUESTS = 20
SMOOTHING = 0.5
"""Added to every bin's count, so that an empty bin gives a large and not an infinite stability index."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One request stream in the order of its arrivals, one entry per request in every array that is there.

    arrival_s: seconds from any origin. classes: names. shared_prefix: share of each prompt's blocks that an earlier
    request had (see `prefix_shares`).
    """

    input_tokens: Values
    output_tokens: Values
    arrival_s: Values = ()
    classes: Sequence[str] = ()
    shared_prefix: Values = ()

    def dimensions(self) -> dict[str, Floats]:
        """The numeric dimensions that are known, by name."""
        found = {
            "input tokens": np.asarray(self.input_tokens, dtype=np.float64),
            "output tokens": np.asarray(self.output_tokens, dtype=np.float64),
            "time between arrivals": np.diff(np.sort(np.asarray(self.arrival_s, dtype=np.float64))),
            "shared prefix": np.asarray(self.shared_prefix, dtype=np.float64),
        }
        return {name: values for name, values in found.items() if len(values)}


@dataclass(frozen=True, slots=True)
class Distance:
    """How far one dimension moved.

    ks: largest gap of the distribution functions (for classes: total variation). psi: population stability index,
    sum (p - q) ln(p / q) over bins. wasserstein: mean distance that mass has to move, in the dimension's unit (None
    for classes). expected, limit: mean of ks for one and the same stream, and the least ks that counts as drift.
    before, after: medians (for classes: None).
    """

    dimension: str
    ks: float
    psi: float
    wasserstein: float | None
    expected: float
    limit: float
    drifted: bool
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """The verdict on two workloads. `decidable` False: fewer than LEAST_REQUESTS on a side, so nothing is claimed."""

    drifted: bool
    distances: tuple[Distance, ...]
    decidable: bool = True

    @property
    def dimensions(self) -> list[str]:
        """What drifted, the farthest beyond its limit first."""
        moved = [one for one in self.distances if one.drifted]
        return [one.dimension for one in sorted(moved, key=lambda one: one.limit / max(one.ks, 1e-12))]


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A change of latency in two parts: `mix + within == change`, in the latency's unit.

    within_by_class: each class' share of `within` (only for the mean, which is a sum over classes).
    """

    before: float
    after: float
    mix: float
    within: float
    within_by_class: Mapping[str, float] = field(default_factory=dict)

    @property
    def change(self) -> float:
        return self.after - self.before


def workload_drift(before: Workload, after: Workload, *, seed: int = 0) -> Drift:
    """Compare two workloads dimension by dimension; a dimension that one side lacks is left out.

    Every permutation test is on whole blocks (Politis & Romano 1994 for why blocks), with the same labels for all
    dimensions. Raises ValueError for a value that is not finite, naming the dimension.
    """
    if min(len(before.input_tokens), len(after.input_tokens)) < LEAST_REQUESTS:
        return Drift(drifted=False, distances=(), decidable=False)
    rng = np.random.default_rng(seed)
    old, new = before.dimensions(), after.dimensions()
    found = []
    for name in old:
        if name in new and min(len(old[name]), len(new[name])) >= LEAST_REQUESTS:
            for values in (old[name], new[name]):
                if not np.all(np.isfinite(values)):
                    raise ValueError(f"workload: {name} holds a value that is not finite")
            found.append(_numeric(name, old[name], new[name], rng))
    if before.classes and after.classes:
        found.append(_class_mix(before.classes, after.classes, rng))
    return Drift(drifted=any(one.drifted for one in found), distances=tuple(found))


def population_stability(before: Sequence[float], after: Sequence[float]) -> float:
    """Population stability index of two vectors of counts over the same bins; 0 for equal shares."""
    old = np.asarray(before, dtype=np.float64) + SMOOTHING
    new = np.asarray(after, dtype=np.float64) + SMOOTHING
    p, q = old / old.sum(), new / new.sum()
    return float(np.sum((q - p) * np.log(q / p)))


def wasserstein(before: Values, after: Values) -> float:
    """First Wasserstein distance of two samples: the area between their distribution functions."""
    old = np.sort(np.asarray(before, dtype=np.float64))
    new = np.sort(np.asarray(after, dtype=np.float64))
    both = np.sort(np.concatenate([old, new]))
    gaps = np.diff(both)
    p = np.searchsorted(old, both[:-1], side="right") / len(old)
    q = np.searchsorted(new, both[:-1], side="right") / len(new)
    return float(np.sum(np.abs(p - q) * gaps))


def prefix_shares(blocks: Sequence[Sequence[Hashable]]) -> list[float]:
    """Per request, the share of its blocks that lie in a prefix which an earlier request had; 0 without blocks."""
    seen: set[Hashable] = set()
    shares = []
    for request in blocks:
        hits = 0
        for block in request:
            if block not in seen:
                break
            hits += 1
        seen.update(request)
        shares.append(hits / len(request) if request else 0.0)
    return shares


def length_classes(input_tokens: Sequence[float], output_tokens: Sequence[float]) -> list[str]:
    """Classes by length where a trace has none: powers of two of the prompt and of the answer."""
    return [
        f"in<{2 ** math.ceil(math.log2(max(1.0, i) + 1))} out<{2 ** math.ceil(math.log2(max(1.0, o) + 1))}"
        for i, o in zip(input_tokens, output_tokens, strict=True)
    ]


def decompose(
    before: Mapping[str, Values],
    after: Mapping[str, Values],
    *,
    quantile: float | None = None,
) -> Decomposition:
    """Split the change of the mean (or of a quantile) into change of mix and change within request classes.

    before, after: latencies of each class' requests. F(mix, within) is the statistic of a population with one side's
    shares of classes and one side's latencies inside each; both orders of moving from old to new are averaged
    (Kitagawa 1955 for the mean, Shapley's value in general), so that the parts add up exactly. A class that one side
    lacks has the other side's latencies there, so that its coming or going is mix. Raises ValueError for an empty side.
    """
    old = {name: np.asarray(values, dtype=np.float64) for name, values in before.items() if len(values)}
    new = {name: np.asarray(values, dtype=np.float64) for name, values in after.items() if len(values)}
    if not old or not new:
        raise ValueError("decompose: a side has no request")
    names = sorted(old.keys() | new.keys())
    shares = [_shares(side, names) for side in (old, new)]
    inside = [[side.get(n, other.get(n)) for n in names] for side, other in ((old, new), (new, old))]
    samples = [[values for values in side if values is not None] for side in inside]

    def statistic(mix: int, within: int) -> float:
        return _statistic(shares[mix], samples[within], quantile)

    f00, f10, f01, f11 = statistic(0, 0), statistic(1, 0), statistic(0, 1), statistic(1, 1)
    by_class: dict[str, float] = {}
    if quantile is None:
        for i, name in enumerate(names):
            weight = (shares[0][i] + shares[1][i]) / 2
            by_class[name] = float(weight * (samples[1][i].mean() - samples[0][i].mean()))
    return Decomposition(
        before=f00,
        after=f11,
        mix=((f10 - f00) + (f11 - f01)) / 2,
        within=((f01 - f00) + (f11 - f10)) / 2,
        within_by_class=by_class,
    )


def _shares(side: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    counts = np.array([len(side.get(name, ())) for name in names], dtype=np.float64)
    shares: Floats = counts / counts.sum()
    return shares


def _statistic(shares: Floats, samples: Sequence[Floats], quantile: float | None) -> float:
    if quantile is None:
        return float(sum(share * values.mean() for share, values in zip(shares, samples, strict=True)))
    values = np.concatenate(samples)
    weights = np.concatenate(
        [np.full(len(inside), share / len(inside)) for share, inside in zip(shares, samples, strict=True)]
    )
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, quantile * reached[-1] * (1 - 1e-12)))
    return float(values[order][min(place, len(values) - 1)])


def _numeric(name: str, old: Floats, new: Floats, rng: np.random.Generator) -> Distance:
    edges = np.unique(np.quantile(np.concatenate([old, new]), np.linspace(0, 1, GRID + 1)[1:-1]))
    table_old = _block_counts(np.searchsorted(edges, old, side="left"), len(edges) + 1)
    table_new = _block_counts(np.searchsorted(edges, new, side="left"), len(edges) + 1)
    ks = _gap(table_old.sum(axis=0), table_new.sum(axis=0), cumulative=True)
    expected, limit = _null(table_old, table_new, rng, cumulative=True)
    coarse = np.unique(np.quantile(old, np.linspace(0, 1, PSI_BINS + 1)[1:-1]))
    bins = [
        np.bincount(np.searchsorted(coarse, v, side="left"), minlength=len(coarse) + 1) for v in (old, new)
    ]
    return Distance(
        name,
        ks,
        population_stability(bins[0].tolist(), bins[1].tolist()),
        wasserstein(old, new),
        expected,
        limit,
        ks > limit,
        float(np.median(old)),
        float(np.median(new)),
    )


def _class_mix(before: Sequence[str], after: Sequence[str], rng: np.random.Generator) -> Distance:
    names = {name: index for index, name in enumerate(sorted(Counter([*before, *after])))}
    old, new = (
        _block_counts(np.array([names[name] for name in side], dtype=np.intp), len(names))
        for side in (before, after)
    )
    distance = _gap(old.sum(axis=0), new.sum(axis=0), cumulative=False)
    expected, limit = _null(old, new, rng, cumulative=False)
    psi = population_stability(old.sum(axis=0).tolist(), new.sum(axis=0).tolist())
    return Distance("class mix", distance, psi, None, expected, limit, distance > limit, None, None)


def _block_counts(bins: NDArray[np.intp], width: int) -> Floats:
    """Counts [blocks, bins] of consecutive requests; single requests where there are too few for blocks."""
    blocks = min(BLOCKS, len(bins))
    owner = np.arange(len(bins)) * blocks // len(bins)
    table = np.zeros((blocks, width))
    np.add.at(table, (owner, bins), 1.0)
    return table


def _gap(old: Floats, new: Floats, *, cumulative: bool) -> float:
    """Kolmogorov-Smirnov distance of binned counts, or total variation."""
    difference = old / old.sum() - new / new.sum()
    return float(np.abs(np.cumsum(difference)).max() if cumulative else np.abs(difference).sum() / 2)


def _null(old: Floats, new: Floats, rng: np.random.Generator, *, cumulative: bool) -> tuple[float, float]:
    """(mean, limit) of the distance when the blocks of both streams are dealt out at random."""
    # Shares of each block, so that streams of different length mix on an equal footing.
    blocks = np.concatenate([old, new])
    labels = np.zeros((DRAWS, len(blocks)))
    for row in labels:
        row[rng.permutation(len(blocks))[: len(old)]] = 1.0
    first, second = labels @ blocks, (1.0 - labels) @ blocks
    difference = first / first.sum(axis=1, keepdims=True) - second / second.sum(axis=1, keepdims=True)
    distances = (
        np.abs(np.cumsum(difference, axis=1)).max(axis=1)
        if cumulative
        else np.abs(difference).sum(axis=1) / 2
    )
    mean = float(distances.mean())
    limit = max(LEAST_DISTANCE, float(distances.max()), mean + DEVIATIONS * float(distances.std()))
    return mean, limit
