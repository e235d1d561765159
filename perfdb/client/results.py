"""Result files: what `run` writes and `compare` and `upload` read, foreign formats included."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import uuid
from array import array
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from perfdb.client.settings import UsageError
from perfdb.formats import FormatError, Reading, read
from perfdb.formats.reading import BenchmarkReading, MetricReading, identity
from runners.result import LaunchResult

_STATISTICS = ("median", "mean", "min", "max", "p90", "p95", "p99", "p999", "rate", "count")
_NAMESPACE = uuid.UUID("3a1f0c52-7f6e-4d0e-8f3b-2f3a3c1d9b01")
_TIERS = ("static", "micro", "step", "replay")
_TIER_OF = dict.fromkeys(
    (
        "vllm", "sglang", "aiperf", "aiperf-records", "genai-perf", "mlperf-summary", "mlperf-detail", "k6",
        "locust", "wrk",
    ),
    "replay",
) | {"torchbench": "step"}  # fmt: skip
_PACK_FROM = 8


def load(path: str, *, format: str = "auto", lower_is_better: bool | None = None) -> Reading:
    """Read a result file. Raises UsageError with format, position and reason."""
    try:
        return read(Path(path), format, lower_is_better=lower_is_better)
    except FormatError as error:
        raise UsageError(f"{path}: {error}") from None


def document(launches: Sequence[LaunchResult], *, commit: dict[str, Any] | None) -> dict[str, Any]:
    """Launch results as one file of perfdb's own format: per case and metric the samples of every launch."""
    cases: dict[str, dict[str, Any]] = {}
    for launch in launches:
        for run in launch.runs:
            key = identity(run.benchmark, run.params)
            case = cases.setdefault(
                key,
                {
                    "name": run.benchmark,
                    "params": run.params,
                    "status": "ok",
                    "metrics": {},
                    "reason": "",
                    "tier": run.tier,
                },
            )
            status = run.status.value
            if status == "ok" and launch.health.violations:
                status, reason = "invalid", "; ".join(launch.health.violations)
            else:
                reason = run.reason
            if status != "ok":
                case["status"], case["reason"] = status, reason
                continue
            for measured in run.measurements:
                metric = case["metrics"].setdefault(
                    measured.metric.name,
                    {
                        "name": measured.metric.name,
                        "unit": measured.metric.unit,
                        "lower_is_better": measured.metric.lower_is_better,
                        "statistic": measured.metric.statistic,
                        "launches": [],
                        "launch_values": [],
                    },
                )
                metric["launches"].append(measured.samples)
                metric["launch_values"].append(measured.value)
    return {
        "format": "perfdb",
        "environment": _environment(launches),
        "commit": commit,
        "benchmarks": [_benchmark(case) for case in cases.values()],
        "warnings": [],
        "rejected": [],
    }


def _environment(launches: Sequence[LaunchResult]) -> dict[str, Any]:
    if not launches:
        return {"class": {}, "boundary": {}, "info": {}}
    first = launches[0].environment
    return {"class": first.klass, "boundary": first.boundary, "info": first.info}


def _benchmark(case: dict[str, Any]) -> dict[str, Any]:
    metrics = []
    for metric in case["metrics"].values():
        own = metric.pop("launch_values")
        if all(value is not None for value in own):
            metric["launch_values"] = own
        metrics.append(metric | {"value": None})
    out = {"name": case["name"], "params": case["params"], "status": case["status"], "metrics": metrics}
    if case["reason"]:
        out["reason"] = case["reason"]
    return out | {"info": {"tier": case["tier"]}}


def batch(
    reading: Reading,
    *,
    commit: dict[str, Any] | None,
    branch: str | None,
    pull_request: int | None,
    pool: str,
) -> dict[str, Any]:
    """The upload that the API takes, as plain data: launch i of every metric goes into launch i.

    Every launch gets a key made of its content and its place, so that the same file for the same commit is the same
    launch however often it is sent, while two equal launches of one file stay two.
    """
    count = max((len(m.launches) for b in reading.benchmarks for m in b.metrics), default=1)
    environment = reading.environment.to_json()
    environment["info"] = environment["info"] | {"format": reading.format}
    launches: list[dict[str, Any]] = [{"environment": environment, "runs": []} for _ in range(count)]
    if (moment := _moment(reading.started_at)) is not None:
        for launch in launches:
            launch["started_at"] = moment
    for benchmark in reading.benchmarks:
        if benchmark.status == "skipped":
            continue
        for number, launch in enumerate(launches):
            metrics = [m for m in benchmark.metrics if number < len(m.launches)]
            if metrics or not number:
                launch["runs"].append(_run(benchmark, metrics, number, reading.format))
    launches = [launch for launch in launches if launch["runs"]]
    for number, launch in enumerate(launches):
        content = json.dumps([launch, commit and commit["sha"], branch, pull_request, number], sort_keys=True)
        launch["id"] = str(uuid.uuid5(_NAMESPACE, hashlib.sha256(content.encode()).hexdigest()))
    return {
        "launches": launches,
        "commit": commit,
        "branch": branch,
        "pull_request": pull_request,
        "pool": pool,
    }


def _run(
    benchmark: BenchmarkReading, metrics: Sequence[MetricReading], number: int, format: str
) -> dict[str, Any]:
    # A case is known by its parameters alone, so a benchmark's version has to be one of them.
    version = {"benchmark_version": benchmark.version[:16]} if benchmark.version else {}
    tier = benchmark.info.get("tier")
    return {
        "benchmark": benchmark.name,
        "params": benchmark.params | version,
        "tier": tier if tier in _TIERS else _TIER_OF.get(format, "micro"),
        "status": benchmark.status,
        "reason": benchmark.reason,
        "log": "\n".join(benchmark.notes),
        "definition_hash": benchmark.version or "",
        "metrics": [row for metric in metrics if (row := _metric(metric, number)) is not None],
    }


def _metric(metric: MetricReading, number: int) -> dict[str, Any] | None:
    figure = metric.per_launch()[number]
    if not figure.samples and figure.value is None:
        return None
    # The server computes what it can from the samples; a figure of more than they are, or of another kind, is sent.
    known = metric.statistic in _STATISTICS
    own = figure.value if metric.partial or not figure.samples or not known else None
    return {
        "name": metric.name,
        "unit": metric.unit,
        "lower_is_better": metric.lower_is_better,
        "statistic": metric.statistic if known else "median",
        "samples": [float(x) for x in figure.samples],
        "value": None if own is None else float(own),
        # Without direction, or without a tail to speak of, nothing may alert.
        "tracked": metric.lower_is_better is not None and not metric.no_tail,
    }


def _moment(text: str | None) -> str | None:
    """An instant with its offset as ISO 8601; a time without one is no instant and is left out."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment.isoformat() if moment.tzinfo is not None else None


def encode(body: dict[str, Any]) -> bytes:
    """The body as JSON; sample lists as typed arrays: little-endian doubles in base64, exact and short."""
    for launch in body["launches"]:
        for run in launch["runs"]:
            for metric in run["metrics"]:
                if isinstance(metric["samples"], list) and len(metric["samples"]) >= _PACK_FROM:
                    metric["samples"] = _packed(metric["samples"])
    return msgspec.json.encode(body)


def _packed(samples: Sequence[float]) -> dict[str, str]:
    doubles = array("d", samples)
    if sys.byteorder == "big":
        doubles.byteswap()
    return {"dtype": "f8", "bdata": base64.b64encode(doubles.tobytes()).decode()}
