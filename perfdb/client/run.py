"""`perfdb run`: measure here and write a result file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfdb.client.output import complain, table


def add_case_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", default=".", help="the tracked repository (default: here)")
    parser.add_argument(
        "--benchmark", action="append", default=[], help="only this benchmark (may be repeated)"
    )
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="only cases with this parameter"
    )
    parser.add_argument("--tier", action="append", default=[], choices=("static", "micro", "step", "replay"))
    parser.add_argument("--launches", type=int, help="launches of each case (default: the manifest's)")
    parser.add_argument("--device", default=None, choices=("auto", "cpu", "cuda"))


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="measure here, no server",
        description="Exit codes: 0 all ok, 2 something failed, 3 nothing measured.",
    )
    add_case_options(parser)
    parser.add_argument(
        "--commit", help="measure a clean checkout of this commit instead of the working tree"
    )
    parser.add_argument(
        "--out", default="perfdb-results.json", help="result file (default: %(default)s; - for stdout)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from perfdb.client import measure, results

    launches = []
    with measure.tree(Path(args.repo), args.commit) as tree:
        cases = measure.select(tree.manifest, args.benchmark, args.param, args.tier)
        total = args.launches or max(case.launches for case in cases)
        for number in range(total):
            due = [case for case in cases if number < (args.launches or case.launches)]
            for device in sorted({args.device or case.device for case in due}):
                chosen = [case for case in due if (args.device or case.device) == device]
                print(f"launch {number + 1} of {total}: {len(chosen)} cases", file=sys.stderr)
                launches.append(measure.launch(tree, chosen, number=number, device=device))
        document = results.document(launches, commit=tree.commit and {"id": tree.commit["sha"]})
    text = json.dumps(document, indent=1, allow_nan=False)
    if args.out == "-":
        print(text)
    else:
        Path(args.out).write_text(text + "\n")
        print("\n".join(_summary(document["benchmarks"])))
        print(f"written to {args.out}")
    failed = [b for b in document["benchmarks"] if b["status"] != "ok"]
    for benchmark in failed:
        complain(f"{benchmark['name']}: {benchmark['status']}: {benchmark.get('reason', '')}")
    if all(not b["metrics"] for b in document["benchmarks"]):
        return 3
    return 2 if failed else 0


def _summary(benchmarks: Sequence[dict[str, Any]]) -> list[str]:
    from statistics import median

    rows = []
    for benchmark in benchmarks:
        params = ", ".join(f"{key}={value}" for key, value in benchmark["params"].items())
        for metric in benchmark["metrics"]:
            values = [median(samples) for samples in metric["launches"] if samples]
            shown = f"{median(values):.6g} {metric['unit']}" if values else "-"
            rows.append(
                (benchmark["name"], params, metric["name"], shown, f"{len(metric['launches'])} launches")
            )
        if not benchmark["metrics"]:
            rows.append((benchmark["name"], params, "-", benchmark["status"], benchmark.get("reason", "")))
    return table(rows)
