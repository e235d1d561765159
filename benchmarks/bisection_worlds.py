"""Simulated ranges of commits for benchmarks/bisection.py: what is true, what a launch gives, what may be answered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfdb.stats.bisect import Answer

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]

SIGMA = 0.01
H200 = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "h200"


@dataclass
class World:
    """One range. ``levels[c]`` is the log level of commit c; ``steps`` the commits at which the level rises."""

    levels: Floats
    steps: tuple[int, ...]
    noise: Noise
    rng: np.random.Generator
    alert_ratio: float
    history: Floats | None
    broken: frozenset[int] = frozenset()
    recovers: bool = False
    drift_walk: float = 0.0  # sd of a random walk, per launch
    drift_slope: float = 0.0  # per launch
    drifted: float = field(default=0.0, init=False)

    def launch(self, commit: int, count: int) -> list[float] | None:
        """Launch medians in time order, or None where the commit cannot be built."""
        if commit in self.broken:
            return None
        values = []
        for noise in self.noise(self.rng, count):
            self.drifted += self.drift_slope + self.drift_walk * self.rng.normal()
            values.append(float(np.exp(self.levels[commit] + noise + self.drifted)))
        return values

    def class_of(self, step: int) -> frozenset[int]:
        """Commits that no launch can tell from ``step``: itself and what failed to build just before it."""
        first = last = step
        while first - 1 in self.broken:
            first -= 1
        while last in self.broken:
            last += 1
        return frozenset(range(first, last + 1))


@dataclass(frozen=True)
class Verdict:
    """``right``: the exact truth. ``wrong``: a commit was named that is none. Neither: undecided or too cautious."""

    right: bool
    wrong: bool


def judge(world: World, answer: Answer) -> Verdict:
    """Compare an answer with the truth. With two steps the name of either one is not wrong, but right are both."""
    named = answer.kind in ("culprit", "range", "several")
    if world.recovers:
        # both the rise and the naming of its commit are true
        right = answer.kind == "recovered"
        return Verdict(right, named and not set(answer.commits) & set(world.steps))
    if not world.steps:
        return Verdict(answer.kind == "not_reproduced", named or answer.kind == "recovered")
    classes = [world.class_of(step) for step in world.steps]
    covered = [bool(set(answer.commits) & one) for one in classes]
    stray = set(answer.commits) - frozenset().union(*classes)
    right = named and all(covered) and not stray
    wrong = answer.kind in ("not_reproduced", "recovered", "outside") or (
        named and (bool(stray) or not any(covered))
    )
    return Verdict(right, wrong)


def gaussian(rng: np.random.Generator, count: int) -> Floats:
    return rng.normal(0.0, SIGMA, count)


def resampled(residuals: Floats) -> Noise:
    """Real launches drawn with replacement."""

    def draw(rng: np.random.Generator, count: int) -> Floats:
        return np.asarray(rng.choice(residuals, count))

    return draw


Maker = Callable[[np.random.Generator], World]


def single(
    s: float,
    *,
    n: int = 128,
    history: int | None = 60,
    history_factor: float = 1.0,
    alert_factor: float = 1.0,
    broken_share: float = 0.0,
    broken_blocks: int = 0,
    drift_walk: float = 0.0,
    drift_slope: float = 0.0,
    noise: Noise = gaussian,
    step: float | None = None,
    history_noise: Noise | None = None,
) -> Maker:
    """One step of ``s`` noise sds (or of ``step``) at a uniform place."""

    def make(rng: np.random.Generator) -> World:
        place = int(rng.integers(1, n + 1))
        size = s * SIGMA if step is None else step
        levels = np.where(np.arange(n + 1) >= place, size, 0.0)
        broken = {c for c in range(1, n) if rng.random() < broken_share}
        for _ in range(broken_blocks):
            start = int(rng.integers(1, n - 12))
            broken |= set(range(start, start + 12))
        past = None if history is None else np.exp((history_noise or noise)(rng, history) * history_factor)
        return World(
            levels,
            (place,),
            noise,
            rng,
            float(np.exp(size * alert_factor)),
            past,
            frozenset(broken),
            drift_walk=drift_walk * SIGMA,
            drift_slope=drift_slope * SIGMA,
        )

    return make


def nothing(s: float, *, n: int = 128, noise: Noise = gaussian) -> Maker:
    """The alert was noise: one level."""

    def make(rng: np.random.Generator) -> World:
        return World(np.zeros(n + 1), (), noise, rng, float(np.exp(s * SIGMA)), np.exp(noise(rng, 60)))

    return make


def twice(s: float, *, n: int = 128) -> Maker:
    """Two equal steps of ``s``; the alert saw their sum."""

    def make(rng: np.random.Generator) -> World:
        first, second = sorted(int(c) for c in rng.choice(np.arange(1, n + 1), 2, replace=False))
        at = np.arange(n + 1)
        levels = np.asarray(s * SIGMA * ((at >= first) * 1.0 + (at >= second)))
        alert = float(np.exp(2 * s * SIGMA))
        return World(levels, (first, second), gaussian, rng, alert, np.exp(gaussian(rng, 60)))

    return make


def recovered(s: float, *, n: int = 128) -> Maker:
    """A step that came back inside the range after a quarter to three quarters of it."""

    def make(rng: np.random.Generator) -> World:
        length = int(rng.integers(n // 4, 3 * n // 4 + 1))
        first = int(rng.integers(1, n - length + 1))
        at = np.arange(n + 1)
        levels = np.where((at >= first) & (at < first + length), s * SIGMA, 0.0)
        alert, past = float(np.exp(s * SIGMA)), np.exp(gaussian(rng, 60))
        return World(levels, (first,), gaussian, rng, alert, past, recovers=True)

    return make


def h200_residuals() -> dict[str, Floats]:
    """Per case and way of measuring, log launch medians less their median. Empty where the data are absent."""
    medians: dict[str, list[float]] = {}
    for name, keys in (("naive", ("ms",)), ("harness", ("naive", "steady"))):
        path = H200 / f"{name}.json.gz"
        if not path.exists():
            return {}
        for launch in json.loads(gzip.decompress(path.read_bytes())):
            for case, measured in launch["cases"].items():
                for key in keys:
                    label = f"{case} {'first' if key == 'ms' else key}"
                    medians.setdefault(label, []).append(float(np.median(measured[key])))
    logs = {label: np.log(np.asarray(values)) for label, values in medians.items() if "@" not in label}
    return {label: values - np.median(values) for label, values in logs.items()}
