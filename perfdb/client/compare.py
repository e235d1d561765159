"""`perfdb compare`: two result files, or two commits measured here in turn. No server."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfdb.client import output
from perfdb.client.run import add_case_options
from perfdb.client.settings import UsageError

if TYPE_CHECKING:
    from perfdb.formats import MetricReading, Reading
    from perfdb.stats import Verdict


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="compare two result files, no server",
        description="Exit codes: 0 no regression, 1 regression, 2 error, 3 nothing could be concluded.",
    )
    parser.add_argument("base", nargs="?", help="result file of the old side")
    parser.add_argument("head", nargs="?", help="result file of the new side")
    parser.add_argument("--format", default="auto", help="of both files (default: by content)")
    parser.add_argument(
        "--direction", choices=("lower", "higher"), help="for metrics where the file does not say"
    )
    parser.add_argument("--base-commit", help="measure this commit here instead of reading a file")
    parser.add_argument("--head-commit", help="and this one, in turn with the base")
    add_case_options(parser)
    parser.add_argument("--output", choices=("text", "json", "markdown"), default="text")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one case on both sides; verdict None: it is on one side only, or failed."""

    name: str
    metric: str
    verdict: Verdict | None
    note: str = ""


def run(args: argparse.Namespace) -> int:
    try:
        import numpy  # noqa: F401  (only to see whether the extra is installed)
        import scipy  # noqa: F401  (as above)
    except ImportError:
        raise UsageError("compare needs the statistics: pip install 'perfdb[stats]'") from None
    base, head = _sides(args)
    rows = compare_readings(base, head)
    print(_show(rows, args.output))
    return exit_code(rows)


def _sides(args: argparse.Namespace) -> tuple[Reading, Reading]:
    from perfdb.client import results

    if args.base_commit or args.head_commit:
        if not (args.base_commit and args.head_commit) or args.base:
            raise UsageError("give either two files or --base-commit and --head-commit")
        return _measured(args)
    if not (args.base and args.head):
        raise UsageError("compare needs two result files (or --base-commit and --head-commit)")
    lower = {"lower": True, "higher": False}.get(args.direction or "")
    return (
        results.load(args.base, format=args.format, lower_is_better=lower),
        results.load(args.head, format=args.format, lower_is_better=lower),
    )


def _measured(args: argparse.Namespace) -> tuple[Reading, Reading]:
    """Both commits measured here, launches in turn: A B B A, so that a drift of the machine hits both alike."""
    from perfdb.client import measure, results
    from perfdb.formats import read

    launches: tuple[list[Any], list[Any]] = ([], [])
    repo = Path(args.repo)
    with measure.tree(repo, args.base_commit) as base, measure.tree(repo, args.head_commit) as head:
        trees = (base, head)
        cases = [measure.select(tree.manifest, args.benchmark, args.param, args.tier) for tree in trees]
        total = args.launches or max(case.launches for case in cases[0])
        for number in range(total):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                device = args.device or cases[side][0].device
                launches[side].append(measure.launch(trees[side], cases[side], number=number, device=device))
    texts = [json.dumps(results.document(side, commit=None)).encode() for side in launches]
    return read(texts[0], "perfdb"), read(texts[1], "perfdb")


def compare_readings(base: Reading, head: Reading) -> list[Row]:
    """Every metric of every case, by name; units of one family are converted, of two refused."""
    old = {benchmark.identity: benchmark for benchmark in base.benchmarks}
    new = {benchmark.identity: benchmark for benchmark in head.benchmarks}
    rows = []
    for key in dict.fromkeys([*old, *new]):
        one, two = old.get(key), new.get(key)
        shown = two or one
        assert shown is not None
        inside = ", ".join(f"{k}={v}" for k, v in sorted(shown.params.items()))
        name = f"{shown.name}[{inside}]" if inside else shown.name
        if one is None or two is None:
            rows.append(Row(name, "", None, "new" if one is None else "missing"))
            continue
        if two.status != "ok" or one.status != "ok":
            bad = two if two.status != "ok" else one
            side = "head" if two.status != "ok" else "base"
            rows.append(Row(name, "", None, f"{side} {bad.status}{': ' + bad.reason if bad.reason else ''}"))
            continue
        before = {metric.name: metric for metric in one.metrics}
        after = {metric.name: metric for metric in two.metrics}
        rows += [
            _row(name, metric, before.get(metric), after.get(metric))
            for metric in dict.fromkeys([*before, *after])
        ]
    return rows


def _row(name: str, metric: str, base: MetricReading | None, head: MetricReading | None) -> Row:
    from perfdb.stats import Metric, Statistic, compare

    if base is None or head is None:
        return Row(name, metric, None, "new" if base is None else "missing")
    try:
        statistic = Statistic(head.statistic)
    except ValueError:
        statistic = Statistic.MEDIAN
    described = Metric(name=metric, unit=base.unit, lower_is_better=head.lower_is_better, statistic=statistic)
    try:
        verdict = compare(_launches(base), _launches(head), metric=described, head_unit=head.unit)
    except ValueError as error:
        return Row(name, metric, None, str(error))
    return Row(name, metric, verdict)


def _launches(metric: MetricReading) -> list[list[float]]:
    """Samples of every launch; a launch of which the file gives its figure only is that figure."""
    out = []
    for figure in metric.per_launch():
        if figure.samples:
            out.append([float(x) for x in figure.samples])
        elif figure.value is not None:
            out.append([float(figure.value)])
    return out


def exit_code(rows: list[Row]) -> int:
    """1 for any regression or break; 3 where nothing was decided or something is missing or undecided."""
    outcomes = [str(row.verdict.outcome) for row in rows if row.verdict is not None]
    if "regressed" in outcomes or any(row.note.startswith("head ") for row in rows):
        return 1
    undecided = {"inconclusive", "invalid"} & set(outcomes) or any(
        row.verdict is None and row.note != "new" for row in rows
    )
    return 3 if undecided or not outcomes else 0


def _show(rows: list[Row], how: str) -> str:
    if how == "json":
        return json.dumps(
            [
                {
                    "case": row.name,
                    "metric": row.metric,
                    "note": row.note,
                    "verdict": row.verdict.to_mapping() if row.verdict else None,
                }
                for row in rows
            ],
            indent=1,
        )
    if how == "markdown":
        lines = ["| case | metric | change | interval | verdict |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(output.neutral(cell) for cell in _cells(row)) + " |" for row in rows]
        return output.cut(lines)
    if not rows:
        return "nothing to compare"
    lines = output.table([_cells(row) for row in rows])
    return "\n".join(
        output.coloured(line, str(row.verdict.outcome) if row.verdict else "") + _why(row)
        for line, row in zip(lines, rows, strict=True)
    )


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    if row.verdict is None:
        return row.name, row.metric, "", "", row.note
    verdict = row.verdict
    interval = (
        f"{output.percent(verdict.low)} to {output.percent(verdict.high)}" if verdict.low is not None else ""
    )
    outcome = str(verdict.outcome)
    return row.name, row.metric, output.percent(verdict.ratio), interval, f"{output.sign(outcome)} {outcome}"


def _why(row: Row) -> str:
    if row.verdict is None or str(row.verdict.outcome) not in ("inconclusive", "invalid"):
        return ""
    return "".join(f"\n    {reason}" for reason in row.verdict.reasons)
