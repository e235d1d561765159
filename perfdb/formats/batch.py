"""A reading as the batch that the API takes: launches of one commit, each with its runs.

Plain dictionaries, so that the client needs nothing of the server. The shape is that of the upload schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perfdb.formats.reading import BenchmarkReading, CommitReading, MetricReading, Reading

_STATISTICS = ("median", "mean", "min", "max", "p90", "p95", "p99", "p999", "rate", "count")
_TIERS = {
    **dict.fromkeys(
        (
            "vllm", "sglang", "aiperf", "aiperf-records", "genai-perf", "mlperf-summary", "mlperf-detail", "k6",
            "locust", "wrk",
        ),
        "replay",
    ),
    "torchbench": "step",
}  # fmt: skip
_SHA = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class Batch:
    """`body` is ready to be sent. `left_out` names what the API has no place for, with the reason."""

    body: dict[str, Any]
    left_out: list[str] = field(default_factory=list)


def batch(
    reading: Reading,
    *,
    commit: CommitReading | None = None,
    branch: str | None = None,
    pool: str = "default",
    tier: str | None = None,
) -> Batch:
    """The batch of a reading. `commit` and `branch` win over what the file names.

    tier: of every run (default: replay for serving and load tests, step for torchbench, else micro).
    """
    commit = commit or reading.commit
    left_out: list[str] = []
    launches: dict[int, list[dict[str, Any]]] = {}
    for each in reading.benchmarks:
        if each.status == "skipped":
            left_out.append(f"{each.name}: skipped: {each.reason}")
            continue
        for place, run in enumerate(_runs(each, tier or _TIERS.get(reading.format, "micro"))):
            launches.setdefault(place, []).append(run)
    environment = reading.environment
    shared: dict[str, Any] = {
        "environment": {
            "class": environment.klass,
            "boundary": environment.boundary,
            "info": environment.info | {"format": reading.format},
        }
    }
    if (started := _moment(reading.started_at)) is not None:
        shared["started_at"] = started
    body: dict[str, Any] = {
        "launches": [shared | {"runs": launches[place]} for place in sorted(launches)],
        "pool": pool,
    }
    if commit is not None and _SHA.fullmatch(commit.id):
        body["commit"] = _commit(commit)
    elif commit is not None:
        left_out.append(f"commit {commit.id}: not a git hash")
    if (branch := branch or (commit.branch if commit else None)) is not None:
        body["branch"] = branch
    return Batch(body, left_out)


def _runs(given: BenchmarkReading, tier: str) -> Iterator[dict[str, Any]]:
    """One run for each launch; a benchmark without samples or figures is one run that says so."""
    # A case is known by its parameters alone, so a benchmark's version has to be one of them.
    params = given.params | ({"benchmark_version": given.version[:16]} if given.version else {})
    count = max((len(metric.launches) for metric in given.metrics), default=1)
    for place in range(max(1, count)):
        run: dict[str, Any] = {
            "benchmark": given.name,
            "params": params,
            "tier": tier,
            "status": given.status,
            "reason": given.reason,
            "log": "\n".join(given.notes),
            "metrics": [row for metric in given.metrics if (row := _row(metric, place)) is not None],
        }
        if given.version:
            run["definition_hash"] = given.version
        yield run


def _row(metric: MetricReading, place: int) -> dict[str, Any] | None:
    figures = metric.per_launch()
    if place >= len(figures):
        return None
    figure = figures[place]
    if not figure.samples and figure.value is None:
        return None
    known = metric.statistic in _STATISTICS
    row: dict[str, Any] = {
        "name": metric.name,
        "unit": metric.unit,
        "samples": [float(sample) for sample in figure.samples],
        "lower_is_better": metric.lower_is_better,
        # A percentile that the server does not compute is a figure like any other: its value is given.
        "statistic": metric.statistic if known else "median",
        # Without direction, or without a tail to speak of, nothing may alert.
        "tracked": metric.lower_is_better is not None and not metric.no_tail,
        "failures": len(metric.flagged) if place == 0 else 0,
    }
    if figure.value is not None:
        row["value"] = float(figure.value)
    return row


def _commit(commit: CommitReading) -> dict[str, Any]:
    made: dict[str, Any] = {"sha": commit.id, "dirty": bool(commit.dirty)}
    if commit.message:
        made["subject"] = commit.message.splitlines()[0][:500]
    if (moment := _moment(commit.time)) is not None:
        made["committed_at"] = moment
    return made


def _moment(text: str | None) -> str | None:
    """An instant with its offset as ISO 8601; a time without one is no instant and is left out."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment.isoformat() if moment.tzinfo is not None else None
