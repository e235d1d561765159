"""Google Benchmark: `--benchmark_format=json`.

Each iteration row is one sample (the mean over its iterations); rows of one name are repetitions. Aggregate rows
(mean, stddev, BigO, RMS) are no samples: their `iterations` is the number of repetitions. A row without
`run_type` comes from an old version and is an iteration.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import CommitReading, MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert

NAME = "google-benchmark"
_UNITS = ("ns", "us", "ms", "s")
_KNOWN_COUNTERS = {
    "bytes_per_second": ("bytes/s", False),
    "items_per_second": ("items/s", False),
}
_FIELDS = {
    "name", "run_name", "run_type", "family_index", "per_family_instance_index", "repetitions", "repetition_index",
    "threads", "iterations", "real_time", "cpu_time", "time_unit", "label", "error_occurred", "error_message",
    "skipped", "skip_message", "aggregate_name", "aggregate_unit", "big_o", "rms", "cpu_coefficient",
    "real_coefficient", "allocs_per_iter", "max_bytes_used", "total_allocated_bytes", "net_heap_growth",
}  # fmt: skip


_OLD_AGGREGATE = re.compile(r"^(.+)_(?:mean|median|stddev|cv)$")


class _Row(msgspec.Struct):
    name: str
    run_name: str | None = None
    run_type: str = "iteration"
    aggregate_name: str | None = None
    real_time: Number | None = None
    cpu_time: Number | None = None
    time_unit: str = "ns"
    label: str | None = None
    error_occurred: bool = False
    error_message: str | None = None
    skipped: bool = False
    skip_message: str | None = None
    threads: int | None = None


def _sniff(source: Source) -> bool:
    document = source.first_object
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or {"machine_info", "commit_info", "version"} & document.keys():
        return False
    if isinstance(document.get("context"), dict):
        return True
    first = benchmarks[0] if benchmarks else None
    return isinstance(first, dict) and {"name", "real_time", "time_unit"} <= first.keys()


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise source.error("$", "expected an object with an array `benchmarks`")
    draft = Draft(NAME)
    context = document.get("context")
    _context(draft, context if isinstance(context, dict) else {})
    rows: list[Any] = document["benchmarks"]
    names = {raw.get("name") for raw in rows if isinstance(raw, dict) and isinstance(raw.get("name"), str)}
    aggregates: list[_Row] = []
    for index, raw in enumerate(rows):
        at = f"benchmarks[{index}]"
        with draft.item(at):
            row = convert(raw, _Row, at)
            old = _OLD_AGGREGATE.match(row.name) if "run_type" not in raw else None
            if row.run_type == "aggregate":
                aggregates.append(row)
            elif row.real_time is None and row.name.endswith(("_BigO", "_RMS")):
                continue
            elif old is not None and old[1] in names:
                continue  # before 1.5 an aggregate is known by its name beside that of its repetitions
            else:
                _iteration(draft, row, raw)
    _aggregates(draft, aggregates)
    return draft.finish()


def _context(draft: Draft, context: dict[str, Any]) -> None:
    started = context.get("date")
    draft.started_at = started if isinstance(started, str) else None
    for key in ("num_cpus", "mhz_per_cpu", "library_build_type"):
        value = context.get(key)
        if isinstance(value, (int, str)):
            # The measured clock varies from run to run, so it cannot tell environments apart.
            (draft.info if key == "mhz_per_cpu" else draft.klass)[key] = value
    draft.info |= {
        key: value
        for key, value in context.items()
        if isinstance(value, (str, int, float)) and key not in ("date", "num_cpus", "library_build_type")
    }
    commit = next(
        (context[key] for key in context if key.upper() in ("GIT_COMMIT_HASH", "GIT_COMMIT", "COMMIT")), None
    )
    if isinstance(commit, str) and commit.strip():
        branch = context.get("GIT_BRANCH")
        status = context.get("GIT_CLEAN_STATUS")
        draft.commit = CommitReading(
            commit.strip(),
            branch=branch if isinstance(branch, str) else None,
            dirty=status.upper() != "CLEAN" if isinstance(status, str) else None,
        )
    if context.get("library_build_type") == "debug":
        draft.warn("context: the benchmark library is a debug build")
    if context.get("cpu_scaling_enabled") is True:
        draft.warn("context: CPU frequency scaling was on")


def _iteration(draft: Draft, row: _Row, raw: dict[str, Any]) -> None:
    name = row.run_name or row.name
    info = {"label": row.label}
    if row.error_occurred:
        draft.add(name, status="error", reason=row.error_message or "failed", repeat="samples", info=info)
        return
    if row.skipped:
        draft.add(name, status="skipped", reason=row.skip_message or "skipped", repeat="samples", info=info)
        return
    if row.time_unit not in _UNITS:
        raise ItemError(f"time_unit {row.time_unit!r}: known are {', '.join(_UNITS)}")
    if row.real_time is None:
        raise ItemError("no real_time")
    metrics = [metric("real_time", row.time_unit, launches=[[row.real_time]])]
    if row.cpu_time is not None:
        # Zero CPU time is possible: all of the work may be in another thread or on a GPU.
        metrics.append(metric("cpu_time", row.time_unit, launches=[[row.cpu_time]], zero_allowed=True))
    metrics += _counters(draft, row.name, raw)
    draft.add(name, metrics, repeat="samples", info=info)


def _counters(draft: Draft, name: str, raw: dict[str, Any]) -> list[MetricReading]:
    """User counters have no unit and no direction: they are kept and never judged."""
    made: list[MetricReading] = []
    for key, value in raw.items():
        if key in _FIELDS or isinstance(value, (str, bool, dict, list)) or value is None:
            continue
        unit, lower = _KNOWN_COUNTERS.get(key, ("", None))
        with draft.item(f"{name} counter", name):
            made.append(metric(key, unit, lower_is_better=lower, launches=[[value]]))
    return made


def _aggregates(draft: Draft, rows: list[_Row]) -> None:
    """Benchmarks of which only aggregates were kept: the median or mean is their value, without samples."""
    best: dict[str, _Row] = {}
    for row in rows:
        if row.real_time is None or row.aggregate_name in ("BigO", "RMS", "stddev", "cv"):
            continue
        name = row.run_name or row.name.removesuffix(f"_{row.aggregate_name or ''}")
        if name in best and row.aggregate_name == best[name].aggregate_name:
            draft.warn(f"{name}: the aggregate {row.aggregate_name or 'row'} comes twice; the first is used")
        if draft.has(name) or (name in best and row.aggregate_name != "median"):
            continue
        best[name] = row
    for name, row in best.items():
        with draft.item(name, name):
            statistic = "median" if row.aggregate_name == "median" else "mean"
            metrics = [metric("real_time", row.time_unit, value=row.real_time, statistic=statistic)]
            if row.cpu_time is not None:
                metrics.append(
                    metric(
                        "cpu_time", row.time_unit, value=row.cpu_time, statistic=statistic, zero_allowed=True
                    )
                )
            draft.add(
                name, metrics, info={"label": row.label}, notes=("aggregate only: the file has no samples",)
            )


FORMAT = Format(NAME, "Google Benchmark JSON", _sniff, _read, ('"benchmarks"', '"context"'))
