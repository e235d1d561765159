"""Result files: what `run` writes and `compare` and `upload` read, foreign formats included."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import uuid
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfdb.client.settings import UsageError
from perfdb.formats import FormatError, Reading, read
from perfdb.formats.batch import batch as to_batch
from perfdb.formats.reading import identity
from runners.result import LaunchResult

_STATISTICS = ("median", "mean", "min", "max", "p90", "p95", "p99", "p999", "rate", "count")
_NAMESPACE = uuid.UUID("3a1f0c52-7f6e-4d0e-8f3b-2f3a3c1d9b01")
_TIERS = ("static", "micro", "step", "replay")
_PACK_FROM = 8


@dataclass(frozen=True, slots=True)
class Upload:
    """A request body, and what of the reading the API has no place for, with the reason."""

    body: bytes
    left_out: tuple[str, ...] = ()


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
        return {"klass": {}, "boundary": {}, "info": {}}
    first = launches[0].environment
    return {"klass": first.klass, "boundary": first.boundary, "info": first.info}


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
) -> Upload:
    """The upload that the API takes: launch i of every metric goes into launch i.

    Every launch gets a key made of its content and its place, so that the same file for the same commit is the same
    launch however often it is sent, while two equal launches of one file stay two.
    """
    made = to_batch(reading, branch=branch, pool=pool, tier=None)
    body = made.body | {"pull_request": pull_request}
    body.pop("commit", None)
    if commit is not None:
        body["commit"] = commit
    body.setdefault("branch", None)
    tiers = {each.name: each.info.get("tier") for each in reading.benchmarks}
    for number, launch in enumerate(body["launches"]):
        for run in launch["runs"]:
            if tiers[run["benchmark"]] in _TIERS:
                run["tier"] = tiers[run["benchmark"]]
        content = json.dumps(
            [launch, commit and commit["sha"], body["branch"], pull_request, number], sort_keys=True
        )
        launch["id"] = str(uuid.uuid5(_NAMESPACE, hashlib.sha256(content.encode()).hexdigest()))
        _pack(launch)
    return Upload(msgspec.json.encode(body), tuple(made.left_out))


def _pack(launch: dict[str, Any]) -> None:
    """Samples as typed arrays: little-endian doubles in base64, a third of the text's size and exact."""
    for run in launch["runs"]:
        for metric in run["metrics"]:
            if len(metric["samples"]) >= _PACK_FROM:
                doubles = array("d", metric["samples"])
                if sys.byteorder == "big":
                    doubles.byteswap()
                metric["samples"] = {"dtype": "f8", "bdata": base64.b64encode(doubles.tobytes()).decode()}
