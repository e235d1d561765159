"""Locust: `<prefix>_stats.csv` (all versions since 1.0) and `--json`. Milliseconds.

Response times count failed requests too, so they are not marked; the failure rate is a metric of its own.
The row Aggregated is kept as a benchmark of that name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import finite, parse_number

NAME = "locust"
_TIMES = {
    "Average Response Time": ("response_time_mean", "mean"),
    "Median Response Time": ("response_time_median", "median"),
    "Min Response Time": ("response_time_min", "min"),
    "Max Response Time": ("response_time_max", "max"),
    "90%": ("response_time_p90", "p90"),
    "95%": ("response_time_p95", "p95"),
    "99%": ("response_time_p99", "p99"),
    "99.9%": ("response_time_p999", "p999"),
}
_JSON_KEYS = {"name", "method", "num_requests", "num_failures", "response_times"}


def _sniff(source: Source) -> bool:
    if source.is_json:
        first = source.first_array[:1]
        return bool(first) and isinstance(first[0], dict) and first[0].keys() >= _JSON_KEYS
    columns = [name.strip() for name in source.head.lstrip().split("\n", 1)[0].split(",")]
    return {"Name", "Request Count", "Failure Count"} <= set(columns) and "Timestamp" not in columns


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    if source.is_json:
        _json(draft, source)
    else:
        for at, row in _rows(source):
            with draft.item(at, row.get("Name")):
                _row(draft, at, row)
    return draft.finish()


def _rows(source: Source) -> Iterator[tuple[str, dict[str, str]]]:
    columns: list[str] = []
    for line in source.lines():
        if not line.text.strip():
            continue
        try:
            cells = next(csv.reader([line.text], strict=True))
        except csv.Error as error:
            raise source.error(line.at, str(error)) from None
        if not columns:
            columns = [cell.strip() for cell in cells]
            if "Request Count" not in columns or "Name" not in columns:
                raise source.error(line.at, "no header with Name and Request Count")
        elif len(cells) != len(columns):
            yield line.at, {"": f"{len(cells)} cells, the header has {len(columns)}"}
        else:
            yield line.at, dict(zip(columns, cells, strict=True))


def _row(draft: Draft, at: str, row: dict[str, str]) -> None:
    if "" in row:
        raise ItemError(row[""])
    sent = parse_number(row["Request Count"], "Request Count")
    failed = parse_number(row.get("Failure Count", "0"), "Failure Count")
    metrics: list[MetricReading] = []
    for column, (name, statistic) in _TIMES.items():
        if row.get(column, "N/A") not in ("N/A", ""):
            metrics += draft.metrics(at, lambda column=column, name=name, statistic=statistic: metric(
                name, "ms", value=parse_number(row[column], column), statistic=statistic, zero_allowed=True
            ))  # fmt: skip
    if row.get("Requests/s"):
        metrics += draft.metrics(
            at,
            lambda: metric(
                "throughput", "requests/s", value=parse_number(row["Requests/s"]), statistic="rate"
            ),
        )
    _add(draft, row.get("Type", row.get("Method", "")), row["Name"], sent, failed, metrics)


def _add(
    draft: Draft, method: str, name: str, sent: Number, failed: Number, metrics: list[MetricReading]
) -> None:
    if sent < 0 or failed < 0 or failed > sent:
        raise ItemError(f"{failed} failures of {sent} requests")
    full = f"{method} {name}".strip()
    if not sent:
        draft.add(full, status="error", reason="no request was sent")
        return
    metrics.append(
        metric("failure_rate", "ratio", lower_is_better=True, value=failed / sent, statistic="rate",
               summary={"requests": sent, "failures": failed})
    )  # fmt: skip
    notes = (f"{failed} of {sent} requests failed",) if failed else ()
    status, reason = ("error", "every request failed") if failed == sent else ("ok", "")
    draft.add(full, metrics, status=status, reason=reason, notes=notes)


def _json(draft: Draft, source: Source) -> None:
    document = source.document
    if not isinstance(document, list):
        raise source.error("$", "expected an array of requests")
    for index, raw in enumerate(document):
        at = f"[{index}]"
        with draft.item(at):
            if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
                raise ItemError("a request without a name")
            _entry(draft, at, raw)


def _entry(draft: Draft, at: str, raw: dict[str, Any]) -> None:
    sent, failed = (
        finite(raw.get("num_requests"), "num_requests"),
        finite(raw.get("num_failures"), "num_failures"),
    )
    timed = sent - finite(raw.get("num_none_requests", 0), "num_none_requests")
    metrics: list[MetricReading] = []
    if timed > 0:
        mean = finite(raw.get("total_response_time"), "total_response_time") / timed
        metrics.append(metric("response_time_mean", "ms", value=mean, statistic="mean", zero_allowed=True))
        for share, label in ((0.5, "median"), (0.95, "p95"), (0.99, "p99")):
            with draft.item(at, raw["name"]):
                value = _percentile(raw.get("response_times"), share)
                if value is not None:
                    metrics.append(
                        metric(
                            f"response_time_{label}", "ms", value=value, statistic=label, zero_allowed=True
                        )
                    )
    start, end = raw.get("start_time"), raw.get("last_request_timestamp")
    if isinstance(start, (int, float)) and isinstance(end, (int, float)) and end > start:
        rate = sent / (finite(end, "last_request_timestamp") - finite(start, "start_time"))
        metrics.append(metric("throughput", "requests/s", value=rate, statistic="rate"))
    method = raw.get("method")
    _add(draft, method if isinstance(method, str) else "", raw["name"], sent, failed, metrics)


def _percentile(histogram: Any, share: float) -> Number | None:
    """Of a histogram {milliseconds: count}, as Locust itself takes it: the value that `share` do not exceed."""
    if not isinstance(histogram, dict) or not histogram:
        return None
    counts = sorted(
        (parse_number(time, "response_times"), finite(n, "response_times")) for time, n in histogram.items()
    )
    wanted = share * sum(count for _, count in counts)
    seen: Number = 0
    for time, count in counts:
        seen += count
        if seen >= wanted:
            return time
    return counts[-1][0]


FORMAT = Format(NAME, "Locust statistics", _sniff, _read)
