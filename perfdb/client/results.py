"""Result files: what `run` writes and `compare` and `upload` read, foreign formats included."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfdb.client.settings import UsageError
from perfdb.formats import FormatError, Reading, read
from perfdb.formats.reading import identity
from runners.result import LaunchResult

_NAMESPACE = uuid.UUID("3a1f0c52-7f6e-4d0e-8f3b-2f3a3c1d9b01")


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
    """The upload that the API takes: launch i of every metric goes into launch i."""
    count = max((len(m.launches) for b in reading.benchmarks for m in b.metrics), default=1)
    launches: list[dict[str, Any]] = [
        {
            "environment": {
                "class": reading.environment.klass,
                "boundary": reading.environment.boundary,
                "info": reading.environment.info,
            },
            "runs": [],
        }
        for _ in range(count)
    ]
    for benchmark in reading.benchmarks:
        if benchmark.status == "skipped":
            continue
        for number, launch in enumerate(launches):
            metrics = [m for m in benchmark.metrics if number < len(m.launches)]
            if not metrics and number:
                continue
            launch["runs"].append(_run(benchmark, metrics, number))
    launches = [launch for launch in launches if launch["runs"]]
    body = {
        "launches": launches,
        "commit": commit,
        "branch": branch,
        "pull_request": pull_request,
        "pool": pool,
    }
    for number, launch in enumerate(launches):
        # The same file for the same commit is the same launch, however often it is sent.
        content = json.dumps([launch, commit and commit["sha"], branch, pull_request, number], sort_keys=True)
        launch["id"] = str(uuid.uuid5(_NAMESPACE, hashlib.sha256(content.encode()).hexdigest()))
    return body


def _run(benchmark: Any, metrics: Sequence[Any], number: int) -> dict[str, Any]:
    rows = []
    for metric in metrics:
        figure = metric.per_launch()[number]
        own = figure.value if metric.partial or not figure.samples else None
        rows.append(
            {
                "name": metric.name,
                "unit": metric.unit,
                "lower_is_better": metric.lower_is_better,
                "statistic": metric.statistic,
                "samples": [float(x) for x in figure.samples],
                "value": None if own is None else float(own),
                "tracked": metric.lower_is_better is not None,
            }
        )
    params = dict(benchmark.params)
    if benchmark.version is not None:
        params["version"] = benchmark.version
    tier = benchmark.info.get("tier", "micro")
    return {
        "benchmark": benchmark.name,
        "params": params,
        "tier": tier if tier in ("static", "micro", "step", "replay") else "micro",
        "status": benchmark.status,
        "reason": benchmark.reason,
        "metrics": rows,
    }


def encode(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)
