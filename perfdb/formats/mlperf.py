"""MLPerf loadgen: `mlperf_log_summary.txt` and `mlperf_log_detail.txt`.

Latencies are nanoseconds. The headline depends on the scenario: Offline samples or tokens a second, Server
completed (or scheduled) samples a second, SingleStream p90 and MultiStream p99 latency. Percentiles are written
"99.00" or "99". An INVALID result is kept and marked. Where the tail percentiles all repeat the maximum, the run
had too few queries to say anything of the tail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.jsontext import parse_json
from perfdb.formats.reading import MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import finite, parse_number

SUMMARY_NAME = "mlperf-summary"
DETAIL_NAME = "mlperf-detail"

_RATES = {
    "samples per second": ("samples_per_second", "samples/s"),
    "tokens per second": ("tokens_per_second", "tokens/s"),
    "tokens per second (inferred)": ("tokens_per_second_inferred", "tokens/s"),
    "scheduled samples per second": ("scheduled_samples_per_second", "samples/s"),
    "completed samples per second": ("completed_samples_per_second", "samples/s"),
    "completed tokens per second": ("completed_tokens_per_second", "tokens/s"),
    "qps w/ loadgen overhead": ("qps_with_loadgen_overhead", "queries/s"),
    "qps w/o loadgen overhead": ("qps_without_loadgen_overhead", "queries/s"),
    "tps w/ loadgen overhead": ("tps_with_loadgen_overhead", "tokens/s"),
    "tps w/o loadgen overhead": ("tps_without_loadgen_overhead", "tokens/s"),
}
_DETAIL_RATES = {
    "result_samples_per_second": _RATES["samples per second"],
    "result_tokens_per_second": _RATES["tokens per second"],
    "result_token_throughput": _RATES["tokens per second"],
    "result_inferred_token_throughput": _RATES["tokens per second (inferred)"],
    "result_scheduled_samples_per_sec": _RATES["scheduled samples per second"],
    "result_completed_samples_per_sec": _RATES["completed samples per second"],
    "result_completed_tokens_per_second": _RATES["completed tokens per second"],
    "result_qps_with_loadgen_overhead": _RATES["qps w/ loadgen overhead"],
    "result_qps_without_loadgen_overhead": _RATES["qps w/o loadgen overhead"],
    "result_token_throughput_with_loadgen_overhead": _RATES["tps w/ loadgen overhead"],
    "result_token_throughput_without_loadgen_overhead": _RATES["tps w/o loadgen overhead"],
}
_KINDS = {"latency": "latency", "first token latency": "ttft", "time to output token": "tpot"}
_LATENCY = re.compile(
    r"^(?P<which>min|max|mean|[\d.]+(?:th)?(?P<first>\s+first token)? percentile) "
    r"(?P<kind>latency|first token latency|time to output token) \(ns\)$"
)
_DETAIL_LATENCY = re.compile(
    r"^result_(?P<kind>first_token_|time_per_output_token_|time_to_output_token_|)"
    r"(?P<which>min|max|mean|[\d.]+_percentile)_(?P<query>(?:per_)?query_)?(?:latency_)?(?:ns)?"
    r"(?:time_to_output_token)?$"
)
_TAILS = ("p90", "p95", "p97", "p99", "p99.9")
_PARAMETERS = ("target_qps", "target_latency", "min_duration", "max_duration", "min_query_count", "max_query_count",
               "samples_per_query", "performance_sample_count", "ttft_latency", "tpot_latency")  # fmt: skip


@dataclass
class _Run:
    """What both files say, in one vocabulary."""

    sut: str = ""
    scenario: str = ""
    mode: str = ""
    validity: str = ""
    reasons: list[str] = field(default_factory=list)
    metrics: list[MetricReading] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


def _sniff_summary(source: Source) -> bool:
    return "MLPerf Results Summary" in source.head[:4000]


def _sniff_detail(source: Source) -> bool:
    return ":::MLLOG {" in source.head[:4000]


def _read_summary(source: Source) -> Reading:
    draft, run, recommending = Draft(SUMMARY_NAME), _Run(), False
    for line in source.lines():
        text = line.text.strip()
        if recommending and text.startswith("*"):
            run.reasons.append(text.lstrip("* "))
            continue
        recommending = text.startswith("Recommendations") or (recommending and bool(text))
        key, colon, value = text.partition(":")
        if colon and key.strip():
            with draft.item(line.at):
                _summary_field(run, key.strip(), value.strip())
    if not run.scenario:
        raise source.error("", "no scenario in the summary: no result")
    _finish(draft, run)
    return draft.finish()


def _summary_field(run: _Run, key: str, value: str) -> None:
    lowered = re.sub(r"\s+", " ", key).lower()
    if lowered == "sut name":
        run.sut = value
    elif lowered == "scenario":
        run.scenario = value
    elif lowered == "mode":
        run.mode = value
    elif lowered == "result is":
        run.validity = value
    elif lowered.endswith("satisfied") and value.upper() == "NO":
        run.reasons.append(f"{key}: {value}")
    elif lowered in _RATES:
        name, unit = _RATES[lowered]
        _put(run, metric(name, unit, value=parse_number(value, key), statistic="rate"))
    elif match := _LATENCY.match(lowered):
        kind = "ttft" if match["first"] else _KINDS[match["kind"]]
        _latency(run, kind, match["which"].split()[0], parse_number(value, key))
    elif (name := key.removesuffix("(ns)").removesuffix("(ms)").strip()) in _PARAMETERS:
        run.settings[key] = parse_number(value, key)


def _read_detail(source: Source) -> Reading:
    draft, run = Draft(DETAIL_NAME), _Run()
    for line in source.lines():
        if not line.text.startswith(":::MLLOG"):
            continue
        try:
            event = parse_json(line.text.removeprefix(":::MLLOG").strip(), format=DETAIL_NAME)
        except FormatError as error:
            draft.reject(line.at, error.reason)
            continue
        if isinstance(event, dict) and isinstance(event.get("key"), str):
            with draft.item(line.at):
                _detail_event(draft, run, event["key"], event.get("value"), event.get("metadata"))
    if not run.scenario:
        raise source.error("", "no scenario in the log: no result")
    _finish(draft, run)
    return draft.finish()


def _detail_event(draft: Draft, run: _Run, key: str, value: Any, metadata: Any) -> None:
    if key in (
        "sut_name",
        "effective_scenario",
        "requested_scenario",
        "effective_test_mode",
        "result_validity",
    ):
        if isinstance(value, str) and not (key == "requested_scenario" and run.scenario):
            setattr(run, _DETAIL_FIELDS[key], value)
    elif key == "result_invalid_reason" and isinstance(value, str):
        run.reasons.append(value.strip())
    elif key in _DETAIL_RATES:
        name, unit = _DETAIL_RATES[key]
        _put(run, metric(name, unit, value=finite(value, key), statistic="rate"))
    elif match := _DETAIL_LATENCY.match(key):
        kind = {"": "latency", "first_token_": "ttft"}.get(match["kind"], "tpot")
        kind = "query_latency" if match["query"] else kind
        _latency(run, kind, match["which"].removesuffix("_percentile"), finite(value, key))
    elif key.startswith("effective_") or key in ("loadgen_version", "result_query_count"):
        if isinstance(value, (int, float, str)) and "seed" not in key:
            run.settings[key.removeprefix("effective_")] = value
    elif key.startswith("error") and isinstance(metadata, dict) and metadata.get("is_error") is True:
        draft.warn(f"{key}: {str(value)[:200]}")


_DETAIL_FIELDS = {
    "sut_name": "sut",
    "effective_scenario": "scenario",
    "requested_scenario": "scenario",
    "effective_test_mode": "mode",
    "result_validity": "validity",
}


def _latency(run: _Run, kind: str, which: str, value: Number) -> None:
    """`which` is min, max, mean or a percentile in any spelling: "99", "99.0", "99.00", "99.0th"."""
    statistic = which
    if which not in ("min", "max", "mean"):
        percentile = parse_number(which.removesuffix("th"), "percentile")
        if not 0 < percentile < 100:
            raise ItemError(f"percentile {which}")
        statistic = f"p{percentile:g}"
    named = {"p50": "median", "p99.9": "p999"}.get(statistic, statistic)
    _put(run, metric(f"{kind}_{statistic}", "ns", value=value, statistic=named))


def _put(run: _Run, made: MetricReading) -> None:
    """The headline stands twice in a summary, above and among the statistics; once is enough."""
    if all(each.name != made.name for each in run.metrics):
        run.metrics.append(made)


def _finish(draft: Draft, run: _Run) -> None:
    notes: list[str] = []
    for kind in ("latency", "query_latency", "ttft", "tpot"):
        _mark_tail(run, kind, notes)
    if run.settings.get("min_duration (ms)", run.settings.get("min_duration_ms")) == 0:
        notes.append("min_duration 0: no rule on how long the run had to last")
    status, reason = "ok", ""
    if run.validity != "VALID":
        status, reason = "invalid", "; ".join(run.reasons) or f"result is {run.validity or 'not given'}"
    if run.mode and run.mode != "PerformanceOnly":
        notes.append(f"mode {run.mode}: not a performance run")
    if status == "ok" and not run.metrics:
        status, reason = "invalid", "no performance figure"
    draft.add(
        run.sut or "loadgen",
        _headline_first(run),
        params={"scenario": run.scenario} | ({"mode": run.mode} if run.mode else {}),
        status=status, reason=reason, notes=tuple(notes), info={"settings": run.settings, "validity": run.validity},
    )  # fmt: skip


def _mark_tail(run: _Run, kind: str, notes: list[str]) -> None:
    tails = [each for each in run.metrics if each.name.removeprefix(f"{kind}_") in _TAILS]
    if len(tails) < 3 or len({each.value for each in tails[-3:]}) > 1:
        return
    repeated = {each.name for each in tails if each.value == tails[-1].value}
    run.metrics = [replace(each, no_tail=True) if each.name in repeated else each for each in run.metrics]
    notes.append(f"{kind}: {', '.join(sorted(repeated))} repeat one value: no tail information")


def _headline_first(run: _Run) -> list[MetricReading]:
    order = {
        "Offline": ("tokens_per_second", "samples_per_second"),
        "Server": (
            "completed_tokens_per_second",
            "completed_samples_per_second",
            "scheduled_samples_per_second",
        ),
        "SingleStream": ("latency_p90",),
        "MultiStream": ("query_latency_p99", "latency_p99"),
    }.get(run.scenario, ())
    ranked = {name: place for place, name in enumerate(order)}
    return sorted(run.metrics, key=lambda each: ranked.get(each.name, len(order)))


SUMMARY_FORMAT = Format(SUMMARY_NAME, "MLPerf loadgen summary", _sniff_summary, _read_summary)
DETAIL_FORMAT = Format(DETAIL_NAME, "MLPerf loadgen detail log", _sniff_detail, _read_detail)
