"""aiperf (`profile_export_aiperf.json`) and genai-perf (`profile_export_genai_perf.json`).

Both write one object a metric: `{"unit": ..., "avg": ..., "p99": ...}`. The average is the metric of that name and
a latency's p99 one of its own; the other statistics go to the summary. Latencies are over successful requests.
Identity is the configuration, never `benchmark_id` or a time stamp.
"""

from __future__ import annotations

import re
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Params, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import finite
from perfdb.units import lookup

AIPERF_NAME = "aiperf"
GENAI_PERF_NAME = "genai-perf"

_STATISTIC = re.compile(r"^(p\d+(\.\d+)?|min|max|std|count|sum)$")
# Directions that the unit does not give; None where neither way is better.
_DIRECTIONS: dict[str, bool | None] = {
    "goodput": False,
    "good_request_fraction": False,
    "benchmark_duration": None,
    "error_request_count": True,
    "error_rate": True,
}
_PARAMS = (
    "model", "model_names", "type", "streaming", "endpoint_type", "service_kind", "backend", "concurrency",
    "request_rate", "request_count", "prefill_concurrency", "synthetic_input_tokens_mean", "output_tokens_mean",
    "isl", "osl", "public_dataset", "custom_dataset_type",
)  # fmt: skip


def _metric_objects(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        key: value
        for key, value in document.items()
        if isinstance(value, dict)
        and isinstance(value.get("unit"), str)
        and "avg" in value
        and "timestamp" not in key  # a point in time in ns is no duration
    }


def _is_genai_perf(document: dict[str, Any]) -> bool:
    return "aiperf_version" not in document and "schema_version" not in document


def _sniff(source: Source) -> bool:
    document = source.first_object
    if source.is_json_lines:
        return False
    return "aiperf_version" in document or bool(
        {"request_throughput", "request_latency"} & _metric_objects(document).keys()
    )


def _sniff_aiperf(source: Source) -> bool:
    return _sniff(source) and not _is_genai_perf(source.first_object)


def _sniff_genai_perf(source: Source) -> bool:
    return _sniff(source) and _is_genai_perf(source.first_object)


def _read_as(name: str, source: Source) -> Reading:
    document = source.document
    metrics = _metric_objects(document) if isinstance(document, dict) else {}
    if not metrics:
        raise source.error("$", "no metric of the form {unit, avg, ...}")
    draft = Draft(name, started_at=_text(document.get("start_time")))
    draft.info["tool_version"] = document.get("aiperf_version")
    made: list[MetricReading] = []
    for key, raw in metrics.items():
        with draft.item(key):
            made.append(_average(key, raw))
        if "p99" in raw and lookup(raw["unit"]).family == "time":
            with draft.item(f"{key}.p99"):
                made.append(_p99(key, raw))
    lost, sent = _count(metrics, "error_request_count"), _count(metrics, "request_count")
    if lost is not None and sent is not None and lost + sent > 0:
        made.append(
            metric(
                "failure_rate", "ratio", lower_is_better=True, value=lost / (lost + sent), statistic="rate"
            )
        )
    notes = (
        (f"{lost:g} of {lost + sent:g} requests failed; latencies count successes only",)
        if lost and sent
        else ()
    )
    status, reason = (
        ("invalid", "the run was cancelled") if document.get("was_cancelled") is True else ("ok", "")
    )
    draft.add(name, made, params=_params(document), status=status, reason=reason, notes=notes)
    return draft.finish()


def _average(key: str, raw: dict[str, Any]) -> MetricReading:
    unit = raw["unit"]
    is_time = lookup(unit).family == "time"
    summary = {
        name: value
        for name, value in raw.items()
        if _STATISTIC.match(name) and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    spread = len(summary) > 0
    return metric(
        key,
        unit,
        lower_is_better=_DIRECTIONS.get(key, "unit"),
        value=finite(raw["avg"], key),
        statistic="mean" if spread else "rate" if "/" in unit else "count",
        successes_only=is_time and key not in _DIRECTIONS,
        summary=summary,
    )


def _p99(key: str, raw: dict[str, Any]) -> MetricReading:
    return metric(
        f"{key}_p99", raw["unit"], value=finite(raw["p99"], "p99"), statistic="p99", successes_only=True
    )


def _count(metrics: dict[str, dict[str, Any]], key: str) -> float | None:
    value = metrics.get(key, {}).get("avg")
    return float(finite(value, key)) if isinstance(value, (int, float)) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _params(document: dict[str, Any]) -> Params:
    """The configuration: what was varied, and the named settings wherever `input_config` keeps them."""
    params: Params = {}
    run = document.get("run_info")
    varied = run.get("variation_values") if isinstance(run, dict) else None
    if isinstance(varied, dict):
        params |= {key: value for key, value in varied.items() if isinstance(value, (str, int, float))}
    _collect(document.get("input_config"), params, "")
    return params


def _collect(node: Any, params: Params, path: str) -> None:
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if isinstance(value, dict):
            _collect(value, params, f"{path}{key}.")
        elif key in _PARAMS or path.endswith(("input_tokens.", "output_tokens.", "isl.", "osl.")):
            if isinstance(value, list) and all(isinstance(each, str) for each in value):
                value = ",".join(value)
            if isinstance(value, (str, int, float)) and f"{path}{key}" not in params:
                params[f"{path}{key}"] = value


FORMAT = Format(AIPERF_NAME, "aiperf JSON", _sniff_aiperf, lambda source: _read_as(AIPERF_NAME, source))
GENAI_PERF_FORMAT = Format(
    GENAI_PERF_NAME, "genai-perf JSON", _sniff_genai_perf, lambda source: _read_as(GENAI_PERF_NAME, source)
)
