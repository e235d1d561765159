"""Measure the verdicts: false alarms, coverage, width, power, cost of knowing, and speed, in one table.

    python -m benchmarks.verdicts [--seed 1] [--draws 1000] [--repetitions 2000] [--h200 ../shared/data/h200]

Every rate comes with its 95 % binomial interval and the bound it must keep. A seed is used once for each row, so that
another `--seed` gives fresh draws everywhere. Exit status 1 where a bound is missed by more than the draws allow.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from benchmarks.verdict_peers import PEERS
from perfdb.stats import Count, Noise, Policy, Verdict, calibrate, compare, compare_paired
from perfdb.stats.effect import measure
from perfdb.stats.rates import share_interval

Floats = npt.NDArray[np.float64]
Launch = TypeVar("Launch")
ROOT = Path(__file__).parents[1]
SIZES = (3, 5, 10, 20)
LAUNCH_NOISE: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "normal": lambda rng, shape: rng.normal(0.0, 0.01, shape),
    "t(3)": lambda rng, shape: 0.006 * rng.standard_t(3, shape),
    "lognormal": lambda rng, shape: 0.01 * rng.lognormal(0.0, 1.0, shape),
    "bimodal": lambda rng, shape: rng.normal(0.0, 0.002, shape) + 0.04 * (rng.random(shape) < 0.5),
    "throttled": lambda rng, shape: rng.normal(0.0, 0.003, shape) + 0.15 * (rng.random(shape) < 0.15),
}
"""Log-scale noise of a launch. Modes half and half are the worst case of two modes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. bound: what must hold; held: whether it does, None where nothing is demanded."""

    group: str
    name: str
    value: str
    bound: str
    held: bool | None


@dataclass(frozen=True, slots=True)
class H200:
    """Launches of each case: samples in ms, and the SM clock of each steady launch in MHz."""

    naive: dict[str, list[list[float]]]
    steady: dict[str, list[list[float]]]
    mhz: dict[str, list[float]]


def at_most(group: str, name: str, events: int, trials: int, limit: float) -> Row:
    interval = share_interval(Count(events, trials))
    return Row(group, name, _share(events, trials), f"<= {100 * limit:g} %", interval[0] <= limit)


def at_least(group: str, name: str, events: int, trials: int, limit: float) -> Row:
    interval = share_interval(Count(events, trials))
    return Row(group, name, _share(events, trials), f">= {100 * limit:g} %", interval[1] >= limit)


def _share(events: int, trials: int) -> str:
    low, high = share_interval(Count(events, trials))
    return f"{100 * events / trials:6.2f} % [{100 * low:.2f}, {100 * high:.2f}]"


def null_calibration(seed: int, repetitions: int) -> list[Row]:
    """Equal code under five kinds of launch noise, through `compare` itself."""
    rows = []
    for k, (kind, draw) in enumerate(LAUNCH_NOISE.items()):
        for size in SIZES:
            rng = np.random.default_rng([seed, 1, k, size])
            logs = draw(rng, (repetitions, 2, size))
            verdicts = [compare(np.exp(base), np.exp(head)) for base, head in logs]
            false = sum(verdict.outcome.is_change for verdict in verdicts)
            covered = sum(_covers(verdict, 1.0) for verdict in verdicts)
            widths = [np.log(v.high) - np.log(v.low) for v in verdicts if v.low and v.high]
            relative = float(np.median(widths) / np.median(_welch_widths(logs)))
            group = f"null, {size} against {size}"
            rows.append(at_most(group, f"{kind}: false verdicts", false, repetitions, 0.01))
            rows.append(at_least(group, f"{kind}: coverage", covered, repetitions, 0.94))
            rows.append(Row(group, f"{kind}: width / Welch", f"{relative:6.2f}", "<= 1.25", relative <= 1.25))
    return rows


def _welch_widths(logs: Floats) -> Floats:
    """Full width of Welch's own 95 % interval."""
    effect = measure(logs[:, 0], logs[:, 1], confidence=0.95)
    return np.asarray(2.0 * stdtrit(effect.degrees, 0.975) * effect.error)


def _covers(verdict: Verdict, truth: float) -> bool:
    return verdict.low is not None and verdict.high is not None and verdict.low <= truth <= verdict.high


def naive_draws(data: H200, seed: int, draws: int) -> list[Row]:
    """Random disjoint launches of the same code, measured naively, against each other."""
    rows: list[Row] = []
    singles = 0
    few = max(1, draws // 5)
    for k, (case, launches) in enumerate(sorted(data.naive.items())):
        rng = np.random.default_rng([seed, 2, k])
        false = _false_draws(launches, 5, draws, rng)
        rows.append(at_most("H200 naive, 5 against 5", f"{case}: false verdicts", false, draws, 0.01))
        singles += _false_draws(launches, 1, few, rng)
        noise = calibrate([[launch] for launch in launches]).noise
        known = _false_draws(launches, 1, few, rng, noise=noise)
        rows.append(at_most("H200 naive, 1 against 1, noise known", f"{case}: false", known, few, 0.01))
    trials = f"{singles} of {few * len(data.naive)}"
    return [*rows, Row("H200 naive, 1 against 1", "all cases: false verdicts", trials, "never", singles == 0)]


def _false_draws(
    launches: list[list[float]],
    size: int,
    draws: int,
    rng: np.random.Generator,
    *,
    noise: Noise | None = None,
) -> int:
    false = 0
    for _ in range(draws):
        order = rng.permutation(len(launches))[: 2 * size]
        base = [launches[i] for i in order[:size]]
        head = [launches[i] for i in order[size:]]
        false += compare(base, head, noise=noise).outcome.is_change
    return false


def beside_peers(data: H200, seed: int, draws: int) -> list[Row]:
    """Usual rules on the same draws: equal code called different, and 3 % more work found."""
    rows = []
    steady = ("softmax.8192x4096", "rmsnorm.8192x4096")
    for peer in PEERS:
        rng = np.random.default_rng([seed, 8])
        shares = []
        for launches in data.naive.values():
            called = 0
            for _ in range(draws):
                order = rng.permutation(len(launches))[:10]
                called += peer.decides([launches[i] for i in order[:5]], [launches[i] for i in order[5:]])
            shares.append(called / draws)
        value = f"{100 * np.mean(shares):6.2f} % (worst case {100 * max(shares):.1f} %)"
        rows.append(Row("rules beside each other: false", peer.name, value, "", None))
        for case in steady:
            base, head = data.steady[case], data.steady[f"{case}@+3"]
            found = sum(peer.decides(_some(base, 5, rng), _some(head, 5, rng)) for _ in range(draws))
            rows.append(Row(f"rules: finds {case}@+3", peer.name, _share(found, draws), "", None))
    return sorted(rows, key=lambda row: row.group)


def steady_draws(data: H200, seed: int, draws: int) -> list[Row]:
    """Known extra work, measured steadily: is it found, and does the interval hold the full-data ratio?"""
    rows: list[Row] = []
    for k, (case, cycles, shown, covered) in enumerate(
        [
            ("softmax.8192x4096", False, 0.99, 0.93),
            ("gemm.4096", True, 0.95, 0.93),
            ("gemm.4096", False, None, None),
        ]
    ):
        base, head = _scaled(data, case, cycles=cycles), _scaled(data, f"{case}@+3", cycles=cycles)
        full = float(np.median([np.median(x) for x in head]) / np.median([np.median(x) for x in base]))
        rng = np.random.default_rng([seed, 3, k])
        verdicts = [compare(_some(base, 5, rng), _some(head, 5, rng)) for _ in range(draws)]
        found = sum(verdict.outcome == "regressed" for verdict in verdicts)
        held = sum(_covers(verdict, full) for verdict in verdicts)
        name = f"{case}@+3 {'in cycles' if cycles else 'in time'}"
        group = "H200 steady, 5 against 5"
        if shown is None or covered is None:
            rows.append(Row(group, f"{name}: regressed", _share(found, draws), "(compare the cycles)", None))
            continue
        rows.append(at_least(group, f"{name}: regressed", found, draws, shown))
        rows.append(at_least(group, f"{name}: covers {full:.4f}", held, draws, covered))
    return [*rows, *clock_draws(data, seed, draws), *cost_of_knowing(data, seed, draws)]


def clock_draws(data: H200, seed: int, draws: int) -> list[Row]:
    """gemm.4096@+3 with the clock of each launch given: time and cycles compared together."""
    rng = np.random.default_rng([seed, 4])
    found = 0
    base, head = data.steady["gemm.4096"], data.steady["gemm.4096@+3"]
    base_mhz, head_mhz = np.array(data.mhz["gemm.4096"]), np.array(data.mhz["gemm.4096@+3"])
    for _ in range(draws):
        i, j = rng.permutation(len(base))[:5], rng.permutation(len(head))[:5]
        verdict = compare(
            [base[k] for k in i], [head[k] for k in j], base_mhz=base_mhz[i], head_mhz=head_mhz[j]
        )
        found += verdict.outcome == "regressed"
    return [at_least("H200 steady, 5 against 5", "gemm.4096@+3 with clocks: regressed", found, draws, 0.95)]


def cost_of_knowing(data: H200, seed: int, draws: int) -> list[Row]:
    """rmsnorm: the median of `launches_needed` against what really gives 80 % power at the full-data effect."""
    base, head = (_scaled(data, f"rmsnorm.8192x4096{more}", cycles=False) for more in ("", "@+3"))
    rng = np.random.default_rng([seed, 5])
    verdicts = [compare(_some(base, 5, rng), _some(head, 5, rng)) for _ in range(draws)]
    open_ones = [v.launches_needed for v in verdicts if v.outcome == "inconclusive" and v.launches_needed]
    x, y = (np.log([np.median(launch) for launch in side]) for side in (base, head))
    truth = next((n for n in range(2, 60) if _power(x, y, n, rng) >= 0.8), 60)
    needed = float(np.median(open_ones))
    value = f"{needed:6.1f} (true {truth}; {100 * len(open_ones) / draws:.0f} % inconclusive)"
    good = truth / 2.0 <= needed <= 2.0 * truth
    return [Row("H200 steady, 5 against 5", "rmsnorm@+3: median launches_needed", value, "factor 2", good)]


def _power(x: Floats, y: Floats, size: int, rng: np.random.Generator, draws: int = 4000) -> float:
    policy = Policy()
    base, head = (side[rng.integers(0, len(side), (draws, size))] for side in (x, y))
    effect = measure(base, head, confidence=policy.confidence)
    found = (effect.p_value < policy.alpha) & (effect.estimate >= np.log1p(policy.relative_floor))
    return float(found.mean())


def _scaled(data: H200, case: str, *, cycles: bool) -> list[Floats]:
    clocks = data.mhz[case] if cycles else [1.0] * len(data.steady[case])
    return [np.array(launch) * mhz for launch, mhz in zip(data.steady[case], clocks, strict=True)]


def _some(launches: Sequence[Launch], size: int, rng: np.random.Generator) -> list[Launch]:
    return [launches[i] for i in rng.permutation(len(launches))[:size]]


def paired_null(seed: int, repetitions: int) -> list[Row]:
    """Interleaved pairs of equal code on a machine that drifts by 3 % between pairs and 1 % inside a pair."""
    rows = []
    for size in (5, 10, 20):
        rng = np.random.default_rng([seed, 6, size])
        false = covered = 0
        for _ in range(repetitions):
            drift = rng.normal(0.0, 0.03, size)
            second = 0.01 * (1 - 2 * (np.arange(size) % 2))
            base = drift + rng.normal(0.0, 0.003, size)
            head = drift + second + rng.normal(0.0, 0.003, size)
            verdict = compare_paired(np.exp(base), np.exp(head))
            false += verdict.outcome.is_change
            covered += _covers(verdict, 1.0)
        rows.append(at_most(f"pairs, {size}", "drifting machine: false verdicts", false, repetitions, 0.01))
        rows.append(at_least(f"pairs, {size}", "drifting machine: coverage", covered, repetitions, 0.94))
    return rows


def speed(seed: int) -> list[Row]:
    """Processor time of 1000 comparisons of 5 against 5 launches of 60 samples."""
    rng = np.random.default_rng([seed, 7])
    sides = [np.exp(rng.normal(0.0, 0.005, (5, 60))).tolist() for _ in range(2)]
    compare(*sides)
    begin = time.process_time()
    for _ in range(1000):
        compare(*sides)
    seconds = time.process_time() - begin
    return [
        Row("speed", "1000 comparisons, 5 x 60 samples a side", f"{seconds:6.2f} s", "<= 1 s", seconds <= 1.0)
    ]


def load(folder: Path) -> H200 | None:
    if not folder.is_dir():
        return None
    naive, harness = (json.loads(gzip.decompress((folder / name).read_bytes())) for name in
                      ("naive.json.gz", "harness.json.gz"))  # fmt: skip
    return H200(naive=_by_case(naive, "ms"), steady=_by_case(harness, "steady"), mhz=_by_case(harness, "mhz"))


def _by_case(launches: list[dict[str, Any]], key: str) -> dict[str, list[Any]]:
    cases: dict[str, list[Any]] = {}
    for launch in launches:
        for case, found in launch["cases"].items():
            cases.setdefault(case, []).append(found[key])
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=1000, help="draws for each H200 case")
    parser.add_argument("--repetitions", type=int, default=2000, help="repetitions for each simulated cell")
    parser.add_argument("--h200", type=Path, default=ROOT.parent / "shared" / "data" / "h200")
    options = parser.parse_args(arguments)
    rows = null_calibration(options.seed, options.repetitions)
    rows += paired_null(options.seed, options.repetitions)
    data = load(options.h200)
    if data is None:
        print(f"{options.h200} is not there: the H200 rows are left out", file=sys.stderr)
    else:
        rows += naive_draws(data, options.seed, options.draws)
        rows += steady_draws(data, options.seed, options.draws)
        rows += beside_peers(data, options.seed, max(1, options.draws // 10))
    rows += speed(options.seed)
    for row in rows:
        mark = {True: "", False: "  MISSED", None: ""}[row.held]
        print(f"{row.group:38s} {row.name:46s} {row.value:36s} {row.bound}{mark}")
    missed = sum(row.held is False for row in rows)
    print(f"{len(rows)} rows, {missed} missed; seed {options.seed}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
