"""How well the micro tier's numbers repeat on a GPU, whether small changes are found, and whether they are true.

    python -m benchmarks.timing measure --out timing.json --launches 40 --seconds 400
    python -m benchmarks.timing profile --out ncu.json
    python -m benchmarks.timing analyse timing.json [ncu.json]

`measure` starts the runner once per launch, cases in shuffled order, and keeps every sample; it stops in time
with what it has. `profile` asks Nsight Compute for the same kernels. `analyse` needs no GPU: launch-to-launch
coefficients of variation in time and in cycles, planted changes by `perfdb.stats`, agreement with the profiler.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runners.result import CaseSpec, LaunchRequest, MetricSpec

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = 9  # the planted cases and their bases come first in CASES
TIME = MetricSpec("time", "us", lower_is_better=True)
TRIALS = 20
LAUNCHES_A_SIDE = 5


def case_specs(names: list[str]) -> tuple[CaseSpec, ...]:
    from benchmarks.gpu_cases import CASES, REFERENCES

    module = "benchmarks.gpu_cases"
    specs = []
    for name in names:
        op, params = CASES[name]
        options = {"inputs": f"{module}:inputs_{op}", "reference": f"{module}:{REFERENCES[op]}"}
        specs.append(CaseSpec(name, "micro", params, (TIME,), entry=f"{module}:{op}", options=options))
    return tuple(specs)


def launch(names: list[str], *, seed: int, budget_s: float) -> dict[str, Any]:
    request = LaunchRequest(
        f"timing-{seed}",
        str(ROOT),
        case_specs(names),
        seed=seed,
        device="cuda",
        budget_s=budget_s,
        sentinel=False,
    )
    environment = dict(os.environ) | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runners"],
        input=request.to_json(),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the runner failed: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(out: Path, *, launches: int, few: int, seconds: float, budget_s: float, names: list[str]) -> None:
    """`names` in every launch; without names every case in the first `few`, the planted ones and bases in all."""
    from benchmarks.gpu_cases import CASES

    everything = names or list(CASES)
    always = names or list(CASES)[:ALWAYS]
    begun = time.monotonic()
    taken: list[dict[str, Any]] = []
    record: dict[str, Any] = {"command": sys.argv, "budget_s": budget_s, "launches": taken}
    for index in range(launches):
        if time.monotonic() - begun > seconds:
            break
        chosen = everything if index < few else always
        started = time.monotonic()
        result = launch(chosen, seed=index, budget_s=budget_s)
        record.setdefault("environment", result["environment"])
        taken.append(
            {
                "order": [chosen[position] for position in result["order"]],
                "seconds": time.monotonic() - started,
                "violations": result["health"]["violations"],
                "events": result["health"]["during"].get("event_reasons"),
                "cases": {run["benchmark"]: _compact(run) for run in result["runs"]},
            }
        )
        out.write_text(json.dumps(record))
        bad = {run["benchmark"]: run["reason"] for run in result["runs"] if run["status"] != "ok"}
        print(f"launch {index}: {taken[-1]['seconds']:.1f} s {bad or ''}", flush=True)


def _compact(run: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "status": run["status"],
        "reason": run["reason"],
        "seconds": round(run["duration_s"], 3),
    }
    for item in run["measurements"]:
        kept["us"] = [round(value, 5) for value in item["samples"]]
        kept["mhz"] = None if item["mhz"] is None else [round(value, 2) for value in item["mhz"]]
    return kept


def profile(out: Path, *, ncu: str, calls: int, names: list[str]) -> None:
    """Microseconds of one call of each case by Nsight Compute, clocks as they are.

    Caches are left alone: as in the runner's graph, each call finds its own inputs cold, and the L2 full of
    what the call before it wrote. Emptying it would spare the call the write-back of those lines.
    """
    found: dict[str, list[float]] = {}
    for name in names:
        done = subprocess.run(
            [
                *(ncu, "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off"),
                *("--metrics", "gpu__time_duration.sum", "--csv", "--print-units", "base"),
                *(sys.executable, "-m", "benchmarks.gpu_cases", str(calls), name),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        durations = _durations_us(done.stdout)
        if not durations or len(durations) % calls:
            print(f"{name}: not profiled: {done.stdout[-300:]} {done.stderr[-300:]}")
            continue
        kernels = len(durations) // calls
        found[name] = [sum(durations[i * kernels : (i + 1) * kernels]) for i in range(calls)]
        print(f"{name}: {statistics.median(found[name]):.2f} us in {kernels} kernels", flush=True)
    out.write_text(json.dumps(found))


def _durations_us(text: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(io.StringIO("\n".join(lines)))
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0}
    return [
        float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]]
        for row in rows
        if row.get("Metric Name") == "gpu__time_duration.sum"
    ]


def analyse(measured: Path, profiled: Path | None, *, without_first: bool) -> None:
    record = json.loads(measured.read_text())
    launches = record["launches"]
    if without_first:
        for item in launches:
            del item["cases"][item["order"][0]]
    ncu = json.loads(profiled.read_text()) if profiled else {}
    names = sorted({name for item in launches for name in item["cases"]})
    print(f"{len(launches)} launches, budget {record['budget_s']} s a case")
    print(
        "| case | launches | median us | CV time 12 / all % | CV cycles 12 / all % | MHz | ncu us | off by |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        print(_row(name, launches, ncu.get(name)))
    print()
    _trials(launches)


def _values(launches: list[dict[str, Any]], name: str) -> tuple[list[float], list[float], list[float]]:
    """Per launch: median time in us, median SM clock in MHz, median cycles."""
    times, clocks, cycles = [], [], []
    for item in launches:
        case = item["cases"].get(name, {})
        if case.get("status") != "ok":
            continue
        times.append(statistics.median(case["us"]))
        mhz = case["mhz"] or [0.0] * len(case["us"])
        clocks.append(statistics.median(mhz))
        cycles.append(statistics.median(us * clock for us, clock in zip(case["us"], mhz, strict=True)))
    return times, clocks, cycles


def _row(name: str, launches: list[dict[str, Any]], ncu: list[float] | None) -> str:
    times, clocks, cycles = _values(launches, name)
    if len(times) < 2:
        return f"| {name} | {len(times)} | | | | | | |"
    median = statistics.median(times)
    truth = statistics.median(ncu) if ncu else None
    off = "" if truth is None else f"{median - truth:+.2f} us, {median / truth - 1:+.1%}"
    return (
        f"| {name} | {len(times)} | {median:.2f} | {_cv(times[:12]):.2f} / {_cv(times):.2f} "
        f"| {_cv(cycles[:12]):.2f} / {_cv(cycles):.2f} | {min(clocks):.0f} to {max(clocks):.0f} "
        f"| {'' if truth is None else f'{truth:.2f}'} | {off} |"
    )


def _cv(values: list[float]) -> float:
    return 100 * statistics.stdev(values) / statistics.fmean(values) if statistics.fmean(values) else 0.0


def _trials(launches: list[dict[str, Any]]) -> None:
    """Disjoint launches on both sides of each trial, judged by the product's own comparison."""
    from benchmarks.gpu_cases import PLANTED
    from perfdb.stats import compare
    from perfdb.stats.policy import Metric, Policy

    metric = Metric("time", "us")
    policy = Policy()
    rng = random.Random(7)
    print("| base | head | regressed | improved | other |")
    print("|---|---|---|---|---|")
    pairs = [*PLANTED.items(), *((name, name) for name in sorted(set(PLANTED.values())))]
    for head, base in pairs:
        count = {"regressed": 0, "improved": 0}
        for _ in range(TRIALS):
            usable = [item["cases"] for item in launches if _ok(item, base) and _ok(item, head)]
            if len(usable) < 2 * LAUNCHES_A_SIDE:
                break
            drawn = rng.sample(usable, 2 * LAUNCHES_A_SIDE)
            left, right = drawn[:LAUNCHES_A_SIDE], drawn[LAUNCHES_A_SIDE:]
            verdict = compare(
                [case[base]["us"] for case in left],
                [case[head]["us"] for case in right],
                metric=metric,
                policy=policy,
                base_mhz=[statistics.median(case[base]["mhz"]) for case in left],
                head_mhz=[statistics.median(case[head]["mhz"]) for case in right],
            )
            outcome = str(verdict.outcome.value)
            if outcome in count:
                count[outcome] += 1
        rest = TRIALS - sum(count.values())
        print(f"| {base} | {head} | {count['regressed']} | {count['improved']} | {rest} |")


def _ok(item: dict[str, Any], name: str) -> bool:
    return bool(item["cases"].get(name, {}).get("status") == "ok")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--launches", type=int, default=40)
    one.add_argument("--few", type=int, default=12)
    one.add_argument("--seconds", type=float, default=400)
    one.add_argument("--budget", type=float, default=0.6)
    one.add_argument("cases", nargs="*")
    two = commands.add_parser("profile")
    two.add_argument("--out", type=Path, required=True)
    two.add_argument("--ncu", default="ncu")
    two.add_argument("--calls", type=int, default=12)
    two.add_argument("cases", nargs="*")
    three = commands.add_parser("analyse")
    three.add_argument("measured", type=Path)
    three.add_argument("profiled", type=Path, nargs="?")
    three.add_argument(
        "--without-first", action="store_true", help="leave out the case that each process measured first"
    )
    chosen = parser.parse_args()
    if chosen.command == "measure":
        measure(
            chosen.out,
            launches=chosen.launches,
            few=chosen.few,
            seconds=chosen.seconds,
            budget_s=chosen.budget,
            names=chosen.cases,
        )
    elif chosen.command == "profile":
        from benchmarks.gpu_cases import CASES

        profile(chosen.out, ncu=chosen.ncu, calls=chosen.calls, names=chosen.cases or list(CASES))
    else:
        analyse(chosen.measured, chosen.profiled, without_first=chosen.without_first)


if __name__ == "__main__":
    main()
