"""Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}.

Units and directions belong to the measure in Bencher's own settings; those of its built-in measures are known.
Bounds that do not contain the value are ignored with a warning, the value is kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite, shown

NAME = "bencher-bmf"
_MEASURES: dict[str, tuple[str, bool]] = {
    "latency": ("ns", True),
    "throughput": ("ops/s", False),
    "build-time": ("s", True),
    "file-size": ("bytes", True),
    "instructions": ("instructions", True),
    "l1-hits": ("", False),
    "l2-hits": ("", False),
    "ram-hits": ("", True),
    "total-read-write": ("", True),
    "estimated-cycles": ("cycles", True),
}


class _Metric(msgspec.Struct):
    value: Any
    lower_value: Number | None = None
    upper_value: Number | None = None


def _is_measures(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(each, dict)
            and "value" in each
            and each.keys() <= {"value", "lower_value", "upper_value"}
            for each in value.values()
        )
    )


def _sniff(source: Source) -> bool:
    document = source.first_object
    return (
        bool(document)
        and not source.is_json_lines
        and any(_is_measures(each) for each in list(document.values())[:20])
    )


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict):
        raise source.error("$", f"expected an object of benchmarks, got {shown(document)}")
    draft = Draft(NAME)
    for name, measures in document.items():
        at = f"[{name!r}]"
        with draft.item(at, name):
            if not isinstance(measures, dict):
                raise ItemError(f"expected an object of measures, got {shown(measures)}")
            metrics: list[MetricReading] = []
            for measure, raw in measures.items():
                with draft.item(f"{at}[{measure!r}]", name):
                    metrics.append(_metric(draft, name, measure, convert(raw, _Metric)))
            draft.add(name, metrics)
    return draft.finish()


def _metric(draft: Draft, name: str, measure: str, given: _Metric) -> MetricReading:
    unit, lower = _MEASURES.get(measure, ("", None))
    value = finite(given.value, "value")
    low, high = given.lower_value, given.upper_value
    summary: dict[str, Any] = {}
    if (low is not None and low > value) or (high is not None and high < value):
        draft.warn(
            f"{name}: {measure}: bounds {low} to {high} do not contain {value}; the bounds are ignored"
        )
    else:
        summary = {key: bound for key, bound in (("lower", low), ("upper", high)) if bound is not None}
    return metric(measure, unit, lower_is_better=lower, value=value, statistic="mean", summary=summary)


FORMAT = Format(NAME, "Bencher Metric Format", _sniff, _read)
