"""k6: `--summary-export`, the `handleSummary` JSON, and `--out json` (one point a line, read as a stream).

Trends are milliseconds. `http_req_duration` counts failed requests too; `{expected_response:true}` leaves them
out. `http_req_failed` is the failure rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import finite

NAME = "k6"
_TREND = ("avg", "med", "min", "max")
_PERCENTILE = re.compile(r"^p\((\d+(?:\.\d+)?)\)$")
_FAILED = {"http_req_failed", "grpc_req_failed"}
_RATES = {
    "http_reqs": "requests/s",
    "iterations": "iterations/s",
    "data_sent": "bytes/s",
    "data_received": "bytes/s",
}
_TIMES = {"iteration_duration", "group_duration", "ws_connecting", "ws_session_duration", "ws_ping"}


def _is_time(name: str, contains: Any) -> bool:
    base = name.split("{")[0]
    return contains == "time" or base in _TIMES or base.startswith(("http_req_", "grpc_req_duration"))


def _sniff(source: Source) -> bool:
    first = source.first_object
    if source.is_json_lines:
        return (
            first.get("type") in ("Metric", "Point")
            and "metric" in first
            and isinstance(first.get("data"), dict)
        )
    metrics = first.get("metrics")
    if not isinstance(metrics, dict) or "environ" in first:
        return False
    return "root_group" in first or bool({"iterations", "http_reqs", "iteration_duration"} & metrics.keys())


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    if source.is_json_lines or source.first_object.get("type") in ("Metric", "Point"):
        _points(draft, source)
        return draft.finish()
    metrics = source.first_object.get("metrics")
    if not isinstance(metrics, dict):
        raise source.error("metrics", "expected an object of metrics")
    made: list[MetricReading] = []
    for name, raw in metrics.items():
        with draft.item(f"metrics[{name!r}]"):
            if not isinstance(raw, dict):
                raise ItemError("expected an object")
            made += _summary(draft, name, raw)
    draft.add("k6", made)
    return draft.finish()


def _summary(draft: Draft, name: str, raw: dict[str, Any]) -> Iterator[MetricReading]:
    """`handleSummary` nests the numbers under `values`, `--summary-export` does not."""
    nested = raw.get("values")
    values = nested if isinstance(nested, dict) else raw
    if "avg" in values or "med" in values:
        yield from _trend(draft, name, values, raw.get("contains"))
    elif "count" in values and "rate" in values:
        yield metric(name, _RATES.get(name, ""), value=finite(values["rate"], name), statistic="rate")
    elif "passes" in values or "rate" in values:
        rate = values["rate"] if "rate" in values else values.get("value")
        if rate is not None:
            lower = True if name in _FAILED else False if name == "checks" else None
            yield metric(name, "ratio", lower_is_better=lower, value=finite(rate, name), statistic="rate")


def _trend(draft: Draft, name: str, values: dict[str, Any], contains: Any) -> Iterator[MetricReading]:
    unit = "ms" if _is_time(name, contains) else ""
    successes = "expected_response:true" in name
    for key, value in values.items():
        percentile = _PERCENTILE.match(key)
        if key not in _TREND and percentile is None:
            continue
        statistic = {"avg": "mean", "med": "median"}.get(key, key)
        if percentile is not None:
            statistic = {"50": "median", "99.9": "p999"}.get(percentile[1], f"p{percentile[1]}")
        with draft.item(f"metrics[{name!r}].{key}"):
            # Phases such as the TLS handshake take no time on a kept connection.
            yield metric(
                f"{name}_{statistic}", unit, value=finite(value, key), statistic=statistic,
                zero_allowed=True, successes_only=successes,
            )  # fmt: skip


def _points(draft: Draft, source: Source) -> None:
    """`--out json`: raw points by metric. Counters and gauges carry no distribution and are left out."""
    kinds: dict[str, str] = {}
    contains: dict[str, Any] = {}
    samples: dict[str, list[Number]] = {}
    for record in source.records():
        if isinstance(record, FormatError):
            draft.reject(record.at, record.reason)
            continue
        with draft.item(record.at):
            row = record.value
            if not isinstance(row, dict) or not isinstance(row.get("data"), dict):
                raise ItemError("neither a Metric nor a Point")
            name, data = row.get("metric"), row["data"]
            if not isinstance(name, str):
                raise ItemError("a row without its metric")
            if row.get("type") == "Metric":
                kinds[name], contains[name] = str(data.get("type")), data.get("contains")
            elif kinds.get(name) in ("trend", "rate"):
                value = finite(data.get("value"), name)
                samples.setdefault(name, []).append(value)
                draft.started_at = draft.started_at or (
                    data["time"] if isinstance(data.get("time"), str) else None
                )
    made: list[MetricReading] = []
    for name, values in samples.items():
        with draft.item(name):
            if kinds[name] == "trend":
                unit = "ms" if _is_time(name, contains[name]) else ""
                made.append(metric(name, unit, launches=[values], zero_allowed=True))
            else:
                share = sum(1 for value in values if value) / len(values)
                lower = True if name in _FAILED else False if name == "checks" else None
                made.append(metric(name, "ratio", lower_is_better=lower, value=share, statistic="rate"))
    if made:
        draft.add("k6", made)


FORMAT = Format(NAME, "k6 summary or points", _sniff, _read, ('"root_group"', '"metrics"'))
