"""aiperf `profile_export.jsonl`: one request a line, so its values are raw samples.

Warm-up requests are left out. A failed request has no latency and is counted only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.units import lookup

NAME = "aiperf-records"


@dataclass
class _Requests:
    """What the lines add up to. samples and units are by metric."""

    samples: dict[str, list[Number]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    failed: int = 0


def _is_request(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("metadata"), dict)
        and isinstance(value.get("metrics"), dict)
        and "error" in value
    )


def _sniff(source: Source) -> bool:
    return _is_request(source.first_object)


def _read(source: Source) -> Reading:
    draft, requests = Draft(NAME), _Requests()
    for record in source.records():
        if isinstance(record, FormatError):
            draft.reject(record.at, record.reason)
            continue
        with draft.item(record.at):
            if not _is_request(record.value):
                raise ItemError("expected a request with metadata, metrics and error")
            _request(draft, requests, record.value)
    if requests.sent:
        _add(draft, requests)
    return draft.finish()


def _request(draft: Draft, requests: _Requests, line: dict[str, Any]) -> None:
    if line["metadata"].get("benchmark_phase") == "warmup":
        return
    requests.sent += 1
    if line["error"]:
        requests.failed += 1
        return
    for key, raw in line["metrics"].items():
        if "timestamp" not in key:  # a point in time in ns is no duration
            with draft.item(key):
                _value(requests, key, raw)


def _value(requests: _Requests, key: str, raw: Any) -> None:
    """One request's value, or values (gaps between chunks), checked one by one: a bad one costs no other."""
    unit = raw.get("unit") if isinstance(raw, dict) else None
    if not isinstance(unit, str) or requests.units.setdefault(key, unit) != unit:
        raise ItemError("no unit, or another one than in the lines before")
    value = raw.get("value")
    for each in value if isinstance(value, list) else [value]:
        number = metric(key, unit, launches=[[each]]).launches[0][0]
        requests.samples.setdefault(key, []).append(number)


def _add(draft: Draft, requests: _Requests) -> None:
    made: list[MetricReading] = []
    for key, values in requests.samples.items():
        with draft.item(key):
            is_time = lookup(requests.units[key]).family == "time"
            made.append(metric(key, requests.units[key], launches=[values], successes_only=is_time))
    sent, failed = requests.sent, requests.failed
    made.append(metric("failure_rate", "ratio", lower_is_better=True, value=failed / sent, statistic="rate"))
    status, reason = ("error", "every request failed") if failed == sent else ("ok", "")
    notes = (f"{failed} of {sent} requests failed; latencies count successes only",) if failed else ()
    draft.add("aiperf", made, status=status, reason=reason, notes=notes)


FORMAT = Format(NAME, "aiperf records, one request a line", _sniff, _read, ('"metadata"', '"metrics"'))
