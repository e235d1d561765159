"""pyperf (perf before 1.7): its JSON, also as .json.gz.

Each run is a process. Calibration runs (no values) and warm-ups are no samples. Values are seconds unless the
metadata's `unit` says otherwise.
"""

from __future__ import annotations

import statistics
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite

NAME = "pyperf"
_UNITS = {"second": "s", "byte": "bytes", "integer": ""}
_BOUNDARY = ("python_version", "python_compiler", "platform")


class _Run(msgspec.Struct):
    values: list[Any] | None = None
    samples: list[Any] | None = None  # the name before version 0.9
    metadata: dict[str, Any] = {}


class _Benchmark(msgspec.Struct):
    runs: list[Any]
    metadata: dict[str, Any] = {}


def _sniff(source: Source) -> bool:
    document = source.first_object
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        return False
    return isinstance(benchmarks[0], dict) and isinstance(benchmarks[0].get("runs"), list)


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise source.error("$", "expected an object with an array `benchmarks`")
    shared = document.get("metadata")
    shared = shared if isinstance(shared, dict) else {}
    draft = Draft(NAME)
    for index, raw in enumerate(document["benchmarks"]):
        at = f"benchmarks[{index}]"
        with draft.item(at):
            benchmark = convert(raw, _Benchmark, at)
            metadata = shared | benchmark.metadata
            if not index:
                _environment(draft, metadata)
            _benchmark(draft, benchmark, metadata, at)
    return draft.finish()


def _environment(draft: Draft, metadata: dict[str, Any]) -> None:
    version = metadata.get("python_version")
    if isinstance(version, str):
        number = version.split()[0] if version.split() else version
        implementation = metadata.get("python_implementation", "python")
        draft.klass["python"] = f"{implementation} {'.'.join(number.split('.')[:2])}"
    for key, name in (("cpu_model_name", "cpu"), ("cpu_count", "cpu_count")):
        if isinstance(metadata.get(key), (str, int)):
            draft.klass[name] = metadata[key]
    draft.boundary |= {key: metadata[key] for key in _BOUNDARY if isinstance(metadata.get(key), str)}
    draft.info |= {
        key: metadata[key]
        for key in (
            "hostname",
            "cpu_config",
            "aslr",
            "perf_version",
            "pyperf_version",
            "timer",
            "cpu_affinity",
        )
        if isinstance(metadata.get(key), str)
    }


def _benchmark(draft: Draft, benchmark: _Benchmark, metadata: dict[str, Any], at: str) -> None:
    name = metadata.get("name")
    if not isinstance(name, str):
        raise ItemError("no name in the metadata")
    launches: list[list[Number]] = []
    for index, raw in enumerate(benchmark.runs):
        run = convert(raw, _Run, f"{at}.runs[{index}]")
        values = run.values or run.samples or []
        if values:
            launches.append([finite(value, f"{at}.runs[{index}].values") for value in values])
            draft.started_at = draft.started_at or _date(run.metadata)
    if not launches:
        raise ItemError("no run with values")
    unit = metadata.get("unit", "second")
    if not isinstance(unit, str):
        raise ItemError("unit is no text", "metadata")
    mean = statistics.fmean(float(value) for values in launches for value in values)
    draft.add(
        name,
        [
            metric(
                "value" if unit == "integer" else "memory" if unit == "byte" else "time",
                _UNITS.get(unit, unit),
                lower_is_better=True if unit in ("second", "byte") else None,
                launches=launches,
                value=mean,
                statistic="mean",
            )
        ],
        info={"description": metadata.get("description"), "loops": metadata.get("loops")},
    )


def _date(metadata: dict[str, Any]) -> str | None:
    date = metadata.get("date")
    return date if isinstance(date, str) else None


FORMAT = Format(NAME, "pyperf JSON", _sniff, _read, ('"benchmarks"', '"runs"'))
