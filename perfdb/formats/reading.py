"""A result file in perfdb's own words: what every reader returns and `perfdb read` prints.

Values keep the unit that the file gives; `perfdb.units` says which units belong together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Number = int | float
Params = dict[str, Any]

STATUSES = ("ok", "incorrect", "oom", "error", "timeout", "invalid", "skipped")


@dataclass(frozen=True, slots=True)
class Flagged:
    """A sample set aside, and why: it is kept, but it is no measurement."""

    value: Number | None
    reason: str


@dataclass(frozen=True, slots=True)
class LaunchFigure:
    """One launch of a metric: its raw samples (empty where the file gives none) and its own value."""

    samples: tuple[Number, ...]
    value: Number | None


@dataclass(frozen=True, slots=True)
class MetricReading:
    """One metric of one benchmark.

    launches: raw samples in `unit`, one tuple per process launch. An empty tuple is a launch of which the file
        gives a summary only: samples are never made up.
    value: the headline in `unit` as the file gives it, else the median of the launches' medians.
    statistic: what `value` is (mean, median, p99, min, max, rate, count).
    lower_is_better: None where neither the format nor the unit says; such a metric is stored but never judged.
    launch_values: the value of each launch, where a file holds several launches without samples.
    partial: the file holds fewer samples than `value` was computed from.
    successes_only: the figure leaves failed attempts out; the failure rate is a metric of its own.
    no_tail: a tail percentile that repeats the maximum: too few attempts to say anything of the tail.
    flagged: samples set aside.
    summary: other figures the file gives for the same metric, in `unit` unless their name says otherwise.
    """

    name: str
    unit: str
    lower_is_better: bool | None
    launches: tuple[tuple[Number, ...], ...] = ((),)
    value: Number | None = None
    statistic: str = "median"
    launch_values: tuple[Number, ...] = ()
    partial: bool = False
    successes_only: bool = False
    no_tail: bool = False
    flagged: tuple[Flagged, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)

    def per_launch(self) -> list[LaunchFigure]:
        """The launches one by one, which is what a run is stored from."""
        values: tuple[Number | None, ...] = self.launch_values
        if not values:
            alone = len(self.launches) == 1
            values = tuple(self.value if alone else None for _ in self.launches)
        return [LaunchFigure(samples, value) for samples, value in zip(self.launches, values, strict=True)]

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": self.name,
            "unit": self.unit,
            "lower_is_better": self.lower_is_better,
            "launches": [list(samples) for samples in self.launches],
            "value": self.value,
            "statistic": self.statistic,
        }
        if self.launch_values:
            out["launch_values"] = list(self.launch_values)
        for mark in ("partial", "successes_only", "no_tail"):
            if getattr(self, mark):
                out[mark] = True
        if self.flagged:
            out["flagged"] = [{"value": each.value, "reason": each.reason} for each in self.flagged]
        if self.summary:
            out["summary"] = self.summary
        return out


@dataclass(frozen=True, slots=True)
class BenchmarkReading:
    """One benchmark at one set of parameters.

    status: one of STATUSES; anything but "ok" has its `reason`.
    version: the benchmark's own version where the tool keeps one; another version is another series.
    notes: marks that belong to this result (failed requests, no tail information).
    info: what describes the benchmark without identifying it (group, label, description).
    """

    name: str
    params: Params
    status: str = "ok"
    metrics: tuple[MetricReading, ...] = ()
    reason: str = ""
    version: str | None = None
    notes: tuple[str, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Name, parameters (sorted) and version as one canonical string: equal strings are one series."""
        return identity(self.name, self.params, self.version)

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "name": self.name,
            "params": self.params,
            "status": self.status,
            "metrics": [metric.to_json() for metric in self.metrics],
        }
        for key, value in (("reason", self.reason), ("version", self.version), ("info", self.info)):
            if value:
                out[key] = value
        if self.notes:
            out["notes"] = list(self.notes)
        return out


def identity(name: str, params: Params, version: str | None = None) -> str:
    """The canonical string that tells series apart."""
    parts = [name, params] if version is None else [name, params, version]
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True, slots=True)
class EnvironmentReading:
    """Where it ran: `klass` separates series, `boundary` marks a step inside one, `info` only informs."""

    klass: dict[str, Any] = field(default_factory=dict)
    boundary: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"class": self.klass, "boundary": self.boundary, "info": self.info}


@dataclass(frozen=True, slots=True)
class CommitReading:
    """The revision that the file names. dirty: the working tree had changes (None: not said)."""

    id: str
    branch: str | None = None
    time: str | None = None
    dirty: bool | None = None
    message: str | None = None

    def to_json(self) -> dict[str, Any]:
        optional = {"branch": self.branch, "time": self.time, "dirty": self.dirty, "message": self.message}
        return {"id": self.id} | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Rejection:
    """One item left out: where it stood, its name if it had one, and why."""

    at: str
    reason: str
    name: str | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"at": self.at, "reason": self.reason}
        return out | {"name": self.name} if self.name is not None else out


@dataclass(frozen=True, slots=True)
class Reading:
    """A whole file. `started_at` is the tool's own time stamp, where it gives one."""

    format: str
    environment: EnvironmentReading = field(default_factory=EnvironmentReading)
    commit: CommitReading | None = None
    benchmarks: tuple[BenchmarkReading, ...] = ()
    warnings: tuple[str, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    started_at: str | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "format": self.format,
            "environment": self.environment.to_json(),
            "commit": None if self.commit is None else self.commit.to_json(),
            "benchmarks": [benchmark.to_json() for benchmark in self.benchmarks],
            "warnings": list(self.warnings),
            "rejected": [rejection.to_json() for rejection in self.rejected],
        }
        return out | {"started_at": self.started_at} if self.started_at else out
