"""JMH: `-rf json`. Each row of `rawData` is a fork, which is a process; its numbers are iterations.

The direction follows the unit, not the mode: a "thrpt" result in s/op is lower-is-better, with a warning.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Params, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite, is_number
from perfdb.units import direction

NAME = "jmh"
_MODE_IS_LOWER = {"thrpt": False, "avgt": True, "sample": True, "ss": True}
# One benchmark may run in several modes; each is a metric of its own.
_METRIC_BY_MODE = {
    "thrpt": "throughput",
    "avgt": "average_time",
    "sample": "sample_time",
    "ss": "single_shot_time",
}


class _Metric(msgspec.Struct):
    score: Any
    scoreUnit: str  # noqa: N815 - the file's own key
    scoreError: Any = None  # noqa: N815 - the file's own key
    scorePercentiles: dict[str, Number] | None = None  # noqa: N815 - the file's own key
    rawData: list[list[Any]] | None = None  # noqa: N815 - the file's own key


class _Result(msgspec.Struct):
    benchmark: str
    primaryMetric: _Metric  # noqa: N815 - the file's own key
    mode: str = ""
    threads: int = 1
    params: dict[str, Any] | None = None
    secondaryMetrics: dict[str, Any] | None = None  # noqa: N815 - the file's own key


def _sniff(source: Source) -> bool:
    first = source.first_array[:1]
    return bool(first) and isinstance(first[0], dict) and {"benchmark", "primaryMetric"} <= first[0].keys()


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, list):
        raise source.error("$", "expected an array of results")
    draft = Draft(NAME)
    for index, raw in enumerate(document):
        with draft.item(f"[{index}]"):
            result = convert(raw, _Result, f"[{index}]")
            _environment(draft, raw)
            _result(draft, result)
    return draft.finish()


def _environment(draft: Draft, raw: dict[str, Any]) -> None:
    version = raw.get("jdkVersion")
    if isinstance(version, str) and "jvm" not in draft.klass:
        draft.klass["jvm"] = f"{raw.get('vmName', 'JVM')} {_major(version)}"
        draft.boundary |= {"jdkVersion": version, "vmVersion": raw.get("vmVersion")}
        draft.info |= {"jmhVersion": raw.get("jmhVersion"), "jvmArgs": raw.get("jvmArgs")}


def _major(version: str) -> str:
    """8 for 1.8.0_202, 17 for 17.0.2."""
    parts = version.split(".")
    return parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]


def _result(draft: Draft, result: _Result) -> None:
    params: Params = dict(sorted((result.params or {}).items()))
    if result.threads != 1:
        params["threads"] = result.threads
    primary = _metric(_METRIC_BY_MODE.get(result.mode, "score"), result.primaryMetric)
    by_mode = _MODE_IS_LOWER.get(result.mode)
    by_unit = direction(result.primaryMetric.scoreUnit)
    if by_mode is not None and by_unit is not None and by_mode != by_unit:
        draft.warn(
            f"{result.benchmark}: mode {result.mode} contradicts the unit {result.primaryMetric.scoreUnit}; "
            f"the unit decides that {'lower' if by_unit else 'higher'} is better"
        )
    metrics = [primary]
    for name, raw in (result.secondaryMetrics or {}).items():
        with draft.item(f"secondaryMetrics[{name!r}]", result.benchmark):
            metrics.append(_metric(name, convert(raw, _Metric), zero_allowed=True))
    draft.add(result.benchmark, metrics, params=params, repeat="metrics")


def _metric(name: str, given: _Metric, *, zero_allowed: bool = False) -> MetricReading:
    launches: list[list[Number]] = [
        [finite(value, "rawData") for value in fork] for fork in given.rawData or [] if fork
    ]
    summary: dict[str, Any] = {}
    if is_number(given.scoreError):
        summary["error"] = given.scoreError
    if not launches:
        summary |= {f"p{key}": value for key, value in (given.scorePercentiles or {}).items()}
    return metric(
        name, given.scoreUnit, launches=launches or [[]], value=finite(given.score, name), statistic="mean",
        summary=summary, zero_allowed=zero_allowed,
    )  # fmt: skip


FORMAT = Format(NAME, "JMH JSON", _sniff, _read, ('"primaryMetric"',))
