"""Rates and costs of the noisy bisection, beside the classical strategies, on seeded simulated ranges.

    python -m benchmarks.bisection --reps 400 [--only NAME ...] [--json FILE]

One line per scenario and strategy: share exactly right and share of wrong names with their 95 % Wilson intervals,
mean and 90 % launches, mean cost (a launch 1, a build 3) and, with several workers, wall units of rounds that end
together. A target of the table in docs/bisection.md that is missed is marked.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import bisection_classical as classical
from benchmarks import bisection_worlds as worlds
from benchmarks.bisection_worlds import Maker, World
from perfdb.stats.bisect import Answer, Search

Z95 = 1.96


@dataclass(frozen=True)
class Target:
    """What must hold; None where nothing is asked."""

    right: float | None = None
    mean: float | None = None
    ninety: float | None = None
    wrong: float = 0.05


@dataclass(frozen=True)
class Scenario:
    name: str
    make: Maker
    target: Target = Target()
    workers: int = 1
    max_cost: float | None = None
    classical: bool = False


@dataclass(frozen=True)
class Line:
    """Result of one strategy in one scenario."""

    scenario: str
    strategy: str
    reps: int
    right: float
    right_low: float
    right_high: float
    wrong: float
    wrong_low: float
    wrong_high: float
    mean_launches: float
    ninety_launches: float
    mean_cost: float
    mean_wall: float
    missed: str


def scenarios() -> list[Scenario]:
    """Every row of the target table, then what a search must survive."""
    single = worlds.single
    listed = [
        Scenario("s=20", single(20), Target(0.98, 16, 18), classical=True),
        Scenario("s=5", single(5), Target(0.98, 16, 18), classical=True),
        Scenario("s=2", single(2), Target(0.95, 40, 55), classical=True),
        Scenario("s=1", single(1), Target(0.95, 140, 220), classical=True),
        Scenario("s=0.5", single(0.5), max_cost=1200),
        Scenario("s=2 four workers", single(2), Target(0.95, 25, 30), workers=4),
        Scenario("none s=2", worlds.nothing(2), Target(0.95, 40, 80), classical=True),
        Scenario("none s=5", worlds.nothing(5)),
        Scenario("s=2 10% unbuildable", single(2, broken_share=0.1), Target(0.95)),
        Scenario("s=2 blocks unbuildable", single(2, broken_blocks=3), Target(0.95)),
        Scenario("recovered s=5", worlds.recovered(5), Target(0.97)),
        Scenario("recovered s=2", worlds.recovered(2), Target(0.97)),
        Scenario("two culprits s=2", worlds.twice(2)),
        Scenario("two culprits s=5", worlds.twice(5)),
        Scenario("no history s=5", single(5, history=None)),
        Scenario("no history s=2", single(2, history=None)),
        Scenario("no history s=1", single(1, history=None)),
        Scenario("alert too small", single(2, alert_factor=math.exp(-0.6))),
        Scenario("alert too large", single(2, alert_factor=math.exp(0.6))),
        Scenario("history too quiet", single(2, history_factor=1 / 3)),
        Scenario("history too loud", single(2, history_factor=3)),
        Scenario("drift walk 0.3", single(2, drift_walk=0.3), classical=True),
        Scenario("drift slope 0.05", single(2, drift_slope=0.05)),
        Scenario("drift slope 0.3", single(2, drift_slope=0.3)),
    ]
    listed += [Scenario(f"N={n} s=2", single(2, n=n)) for n in (1, 2, 8, 32, 512)]
    pools = worlds.h200_residuals()
    for label, residuals in sorted(pools.items()):
        noise = worlds.resampled(residuals)
        target = Target(wrong=0.03)
        listed.append(
            Scenario(
                f"H200 {label} 2%", single(0, noise=noise, step=0.02), target, max_cost=250, classical=True
            )
        )
    if pools:
        listed += _mismatched(pools)
    return listed


def _mismatched(pools: dict[str, worlds.Floats]) -> list[Scenario]:
    """Real noise with the history of another, quieter benchmark."""
    quiet = worlds.resampled(pools["trainstep.b8 first"])
    names = ("embbag.16384 first", "rmsnorm.8192x4096 first", "softmax.8192x4096 first")
    return [
        Scenario(
            f"H200 {name} 2% wrong history",
            worlds.single(0, noise=worlds.resampled(pools[name]), step=0.02, history_noise=quiet),
            Target(wrong=0.03),
            max_cost=250,
        )
        for name in names
    ]


@dataclass(frozen=True)
class Played:
    answer: Answer
    wall: float


def play(world: World, scenario: Scenario) -> Played:
    """Run a search to its end; workers of one round start and end together."""
    search = Search(
        world.levels.size - 1,
        alert_ratio=world.alert_ratio,
        history=None if world.history is None else world.history.tolist(),
        max_cost=scenario.max_cost,
    )
    wall, built = 0.0, set[int]()
    while probes := search.next(scenario.workers):
        durations = []
        for probe in probes:
            durations.append(probe.launches + (0.0 if probe.commit in built else 3.0))
            built.add(probe.commit)
            search.observe(probe.commit, world.launch(probe.commit, probe.launches))
        wall += max(durations)
    return Played(search.answer, wall)


Strategy = Callable[[World], Played]


def strategies(scenario: Scenario) -> dict[str, Strategy]:
    """The search, and the classical ones where the scenario asks for them."""
    result: dict[str, Strategy] = {"search": lambda world: play(world, scenario)}
    if scenario.classical:
        result["one a midpoint"] = lambda world: _walled(classical.fixed(world, 1))
        result["13 a midpoint"] = lambda world: _walled(classical.fixed(world, 13))
        result["doubling"] = lambda world: _walled(classical.doubling(world))
    return result


def _walled(answer: Answer) -> Played:
    return Played(answer, answer.cost)


def measure(scenario: Scenario, name: str, strategy: Strategy, reps: int) -> Line:
    """``reps`` ranges, each from a seed of its own: every strategy meets the same ranges."""
    right, wrong, launches, costs, walls = 0, 0, [], [], []
    for rep in range(reps):
        world = scenario.make(np.random.default_rng([zlib.crc32(scenario.name.encode()), rep]))
        played = strategy(world)
        verdict = worlds.judge(world, played.answer)
        right += verdict.right
        wrong += verdict.wrong
        launches.append(played.answer.launches)
        costs.append(played.answer.cost)
        walls.append(played.wall)
    right_low, right_high = wilson(right, reps)
    wrong_low, wrong_high = wilson(wrong, reps)
    mean = float(np.mean(walls if scenario.workers > 1 else launches))
    ninety = float(np.quantile(walls if scenario.workers > 1 else launches, 0.9))
    missed = _missed(scenario.target, right / reps, wrong / reps, mean, ninety) if name == "search" else ""
    return Line(
        scenario.name, name, reps, right / reps, right_low, right_high, wrong / reps, wrong_low, wrong_high,
        float(np.mean(launches)), float(np.quantile(launches, 0.9)), float(np.mean(costs)), float(np.mean(walls)),
        missed,
    )  # fmt: skip


def _missed(target: Target, right: float, wrong: float, mean: float, ninety: float) -> str:
    misses = []
    if target.right is not None and right < target.right:
        misses.append(f"right < {target.right:.0%}")
    if wrong > target.wrong:
        misses.append(f"wrong > {target.wrong:.0%}")
    if target.mean is not None and mean > target.mean:
        misses.append(f"mean {mean:.1f} > {target.mean:g}")
    if target.ninety is not None and ninety > target.ninety:
        misses.append(f"90 % {ninety:.0f} > {target.ninety:g}")
    return ", ".join(misses)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a binomial share (Wilson 1927)."""
    share = successes / trials
    centre = share + Z95**2 / (2 * trials)
    half = Z95 * math.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))
    scale = 1 + Z95**2 / trials
    return max((centre - half) / scale, 0.0), min((centre + half) / scale, 1.0)


def show(line: Line) -> str:
    return (
        f"{line.scenario:34} {line.strategy:15} right {line.right:6.1%} [{line.right_low:.1%}, {line.right_high:.1%}] "
        f"wrong {line.wrong:5.1%} [{line.wrong_low:.1%}, {line.wrong_high:.1%}] launches {line.mean_launches:6.1f} "
        f"({line.ninety_launches:.0f}) cost {line.mean_cost:6.1f} wall {line.mean_wall:6.1f}"
        f"{'  MISSED: ' + line.missed if line.missed else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reps", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=[], help="scenarios whose name contains one of these")
    parser.add_argument("--search-only", action="store_true", help="leave the classical strategies out")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    lines = []
    for scenario in scenarios():
        if arguments.only and not any(part in scenario.name for part in arguments.only):
            continue
        for name, strategy in strategies(scenario).items():
            if arguments.search_only and name != "search":
                continue
            line = measure(scenario, name, strategy, arguments.reps)
            lines.append(line)
            print(show(line), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
