"""BenchmarkDotNet: `*-report.json`, `-full`, `-full-compressed` and `-brief`. Nanoseconds per operation.

`Measurements` (full files) say which launch, a process, a value comes from: stage Result is the workload with the
overhead taken off, and is what the statistics are computed of.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Params, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite

NAME = "benchmarkdotnet"
_RANDOM_JOB = re.compile(r"^Job-[A-Z]{6}")
_UNITS = {"Count": "count", "": "", "B": "bytes"}


class _Benchmark(msgspec.Struct):
    FullName: str | None = None
    DisplayInfo: str | None = None
    Namespace: str | None = None
    Type: str | None = None
    Method: str | None = None
    Parameters: str | None = None
    Statistics: dict[str, Any] | None = None
    Memory: dict[str, Any] | None = None
    Measurements: list[Any] | None = None
    Metrics: list[Any] | None = None


def _sniff(source: Source) -> bool:
    document = source.first_object
    return isinstance(document.get("Benchmarks"), list) and bool(
        {"HostEnvironmentInfo", "Title"} & document.keys()
    )


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("Benchmarks"), list):
        raise source.error("$", "expected an object with an array `Benchmarks`")
    draft = Draft(NAME)
    host = document.get("HostEnvironmentInfo")
    _environment(draft, host if isinstance(host, dict) else {})
    for index, raw in enumerate(document["Benchmarks"]):
        with draft.item(f"Benchmarks[{index}]"):
            _benchmark(draft, convert(raw, _Benchmark, f"Benchmarks[{index}]"))
    return draft.finish()


def _environment(draft: Draft, host: dict[str, Any]) -> None:
    for key, name in (
        ("ProcessorName", "cpu"),
        ("Architecture", "architecture"),
        ("LogicalCoreCount", "cores"),
    ):
        value = host.get(key)
        if isinstance(value, dict):  # newer versions nest it
            value = value.get("ProcessorName")
        if isinstance(value, (str, int)):
            draft.klass[name] = value
    runtime = host.get("RuntimeVersion")
    if isinstance(runtime, str):
        draft.klass["runtime"] = re.sub(r"^((?:\.NET )?\D*\d+\.\d+).*$", r"\1", runtime)
        draft.boundary["runtime"] = runtime
    draft.boundary |= {
        key: host[key] for key in ("OsVersion", "DotNetCliVersion") if isinstance(host.get(key), str)
    }
    draft.info["tool_version"] = host.get("BenchmarkDotNetVersion")
    if host.get("Configuration") == "DEBUG":
        draft.warn("HostEnvironmentInfo: a DEBUG build")


def _benchmark(draft: Draft, benchmark: _Benchmark) -> None:
    parts = (benchmark.Namespace, benchmark.Type, benchmark.Method)
    name = benchmark.FullName or ".".join(part for part in parts if part)
    params: Params = {}
    job = (benchmark.DisplayInfo or "").partition(": ")[2]
    if job:
        # Job names made up by the tool are random; the settings in brackets are what differs between jobs.
        settings = _RANDOM_JOB.sub("", job.split(" [")[0]).strip("()")
        if settings and settings != "DefaultJob":
            params["job"] = settings
    if benchmark.Parameters and not benchmark.FullName:
        params["parameters"] = benchmark.Parameters
    if benchmark.Statistics is None:
        draft.add(name, params=params, status="error", reason="no statistics: the benchmark failed")
        return
    metrics = [_time(benchmark, benchmark.Statistics), *_others(draft, benchmark)]
    draft.add(name, metrics, params=params)


def _time(benchmark: _Benchmark, statistics: dict[str, Any]) -> MetricReading:
    launches = _launches(benchmark.Measurements or [])
    if not launches:
        values = statistics.get("OriginalValues")
        launches = (
            [[finite(value, "OriginalValues") for value in values]] if isinstance(values, list) else [[]]
        )
    summary = {
        key: statistics[key]
        for key in ("N", "Min", "Median", "Max", "StandardDeviation")
        if isinstance(statistics.get(key), (int, float)) and not isinstance(statistics[key], bool)
    }
    value = finite(statistics.get("Mean"), "Statistics.Mean")
    return metric("time", "ns", launches=launches, value=value, statistic="mean", summary=summary)


def _launches(measurements: list[Any]) -> list[list[Number]]:
    found: dict[int, list[Number]] = {}
    for raw in measurements:
        if not isinstance(raw, dict) or raw.get("IterationStage") != "Result":
            continue
        if raw.get("IterationMode") not in ("Workload", "Result"):
            continue
        launch, operations = raw.get("LaunchIndex"), finite(raw.get("Operations"), "Measurements.Operations")
        if not isinstance(launch, int) or operations <= 0:
            raise ItemError("a measurement without launch or operations", "Measurements")
        found.setdefault(launch, []).append(
            finite(raw.get("Nanoseconds"), "Measurements.Nanoseconds") / operations
        )
    return [found[launch] for launch in sorted(found)]


def _others(draft: Draft, benchmark: _Benchmark) -> list[MetricReading]:
    made: list[MetricReading] = []
    for raw in benchmark.Metrics or []:
        with draft.item("Metrics", benchmark.FullName):
            descriptor = raw.get("Descriptor") if isinstance(raw, dict) else None
            if not isinstance(descriptor, dict) or not isinstance(descriptor.get("Id"), str):
                raise ItemError("a metric without Descriptor.Id")
            greater = descriptor.get("TheGreaterTheBetter")
            unit = descriptor.get("Unit")
            unit = unit if isinstance(unit, str) else ""
            made.append(
                metric(
                    descriptor["Id"],
                    _UNITS.get(unit, unit),
                    lower_is_better=not greater if isinstance(greater, bool) else None,
                    value=finite(raw.get("Value"), descriptor["Id"]),
                    statistic="mean",
                    zero_allowed=True,
                )
            )
    allocated = (benchmark.Memory or {}).get("BytesAllocatedPerOperation")
    if allocated is not None and all(each.name != "Allocated Memory" for each in made):
        made += draft.metrics(
            "Memory",
            lambda: metric(
                "Allocated Memory", "bytes", lower_is_better=True, value=finite(allocated), statistic="mean"
            ),
        )
    return made


FORMAT = Format(NAME, "BenchmarkDotNet JSON", _sniff, _read, ('"Benchmarks"', '"HostEnvironmentInfo"'))
