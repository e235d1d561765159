"""vLLM `bench serve` (`--save-result`, also appended one object a line), `bench latency` and `bench throughput`.

A run with failed requests is kept and marked: its percentiles are over successes, its failure rate a metric of
its own. `request_rate` "inf" is a parameter, +infinity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Params, Reading
from perfdb.formats.serving import failed_note, positive_samples, run_metrics
from perfdb.formats.source import Source
from perfdb.formats.values import finite, shown

NAME = "vllm"
_PARAMS = (
    "backend",
    "endpoint_type",
    "model_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
)
_THROUGHPUT = {"requests_per_second": "requests/s", "tokens_per_second": "tokens/s"}


def _is_serve(record: dict[str, Any]) -> bool:
    return {"model_id", "request_throughput"} <= record.keys() or {
        "tokenizer_id",
        "completed",
    } <= record.keys()


def _is_latency(record: dict[str, Any]) -> bool:
    return {"avg_latency", "latencies", "percentiles"} <= record.keys()


def _is_throughput(record: dict[str, Any]) -> bool:
    return {"elapsed_time", "num_requests", "tokens_per_second"} <= record.keys()


def _sniff(source: Source) -> bool:
    first = source.first_object
    return _is_serve(first) or _is_latency(first) or _is_throughput(first)


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    for record in source.records():
        if isinstance(record, FormatError):
            draft.reject(record.at, record.reason)
            continue
        with draft.item(record.at):
            if not isinstance(record.value, dict):
                raise ItemError(f"expected an object, got {shown(record.value)}")
            _record(draft, record.at, record.value)
    return draft.finish()


def _record(draft: Draft, at: str, record: dict[str, Any]) -> None:
    if _is_serve(record):
        _serve(draft, at, record)
    elif _is_latency(record):
        _latency(draft, record)
    elif _is_throughput(record):
        metrics = draft.metrics(
            at,
            *(
                lambda key=key, unit=unit: metric(key, unit, value=finite(record[key], key), statistic="rate")
                for key, unit in _THROUGHPUT.items()
                if key in record
            ),
        )
        draft.add("throughput", metrics, params={"num_requests": record["num_requests"]}, repeat="launches")
    else:
        raise ItemError("neither bench serve, latency nor throughput")


def _serve(draft: Draft, at: str, record: dict[str, Any]) -> None:
    completed, failed = record.get("completed"), record.get("failed")
    if failed is None and isinstance(completed, int) and isinstance(record.get("num_prompts"), int):
        failed = record["num_prompts"] - completed  # versions before 2025 do not write it
    metrics = _with_samples(run_metrics(draft, at, record, failed), record)
    status, reason = ("error", "no request completed") if completed == 0 else ("ok", "")
    date = record.get("date")
    draft.started_at = draft.started_at or (date if isinstance(date, str) else None)
    draft.add(
        "serve",
        metrics,
        params=_params(record),
        status=status,
        reason=reason,
        notes=failed_note(completed, failed),
        info={
            key: record.get(key)
            for key in (
                "duration",
                "completed",
                "failed",
                "total_input_tokens",
                "total_output_tokens",
                "label",
            )
        },
        repeat="launches",
    )


def _params(record: dict[str, Any]) -> Params:
    params: Params = {}
    for key in _PARAMS:
        value = record.get(key)
        if isinstance(value, (str, int, float)):
            params[key] = value
    return params


def _with_samples(metrics: list[MetricReading], record: dict[str, Any]) -> list[MetricReading]:
    """`--save-detailed` keeps the TTFT of every request; a failed one has 0 there and an error text."""
    errors = record.get("errors")
    errors = errors if isinstance(errors, list) else []
    samples = positive_samples(record.get("ttfts"), lambda place: place >= len(errors) or not errors[place])
    if not samples:
        return metrics
    finite_samples = tuple(finite(value, "ttfts") for value in samples)
    return [
        replace(each, launches=(finite_samples,)) if each.name in ("median_ttft", "p99_ttft") else each
        for each in metrics
    ]


def _latency(draft: Draft, record: dict[str, Any]) -> None:
    samples = record["latencies"] if isinstance(record["latencies"], list) else []
    metrics = [
        metric(
            "latency",
            "s",
            launches=[samples],
            value=finite(record["avg_latency"], "avg_latency"),
            statistic="mean",
        )
    ]
    percentiles = record["percentiles"]
    if isinstance(percentiles, dict) and "99" in percentiles:
        metrics += draft.metrics(
            "percentiles",
            lambda: metric("latency_p99", "s", value=finite(percentiles["99"]), statistic="p99"),
        )
    draft.add("latency", metrics, repeat="launches")


FORMAT = Format(NAME, "vLLM bench results", _sniff, _read, ('"model_id"', '"request_throughput"'))
