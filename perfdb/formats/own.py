"""perfdb's own result file, as docs/formats.md gives it: what `perfdb run` and `perfdb read` write and the API
accepts. It is the reading itself, so it is checked key by key and nothing is inferred but the unit's direction.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import STATUSES, CommitReading, Flagged, MetricReading, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, is_number

NAME = "perfdb"
_STATISTIC = re.compile(r"median|mean|min|max|rate|count|p999|p\d{1,2}(\.\d+)?")


class _Flagged(msgspec.Struct, forbid_unknown_fields=True):
    value: Any
    reason: str


class _Metric(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    unit: str
    lower_is_better: bool | msgspec.UnsetType | None = msgspec.UNSET
    launches: list[list[Any]] = msgspec.field(default_factory=lambda: [[]])
    value: Any = None
    statistic: str = "median"
    launch_values: list[Any] = []
    partial: bool = False
    successes_only: bool = False
    no_tail: bool = False
    flagged: list[_Flagged] = []
    summary: dict[str, Any] = {}


class _Benchmark(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    metrics: list[Any] = []
    params: dict[str, Any] = {}
    status: str = "ok"
    reason: str = ""
    version: str | None = None
    notes: list[str] = []
    info: dict[str, Any] = {}


class _Environment(msgspec.Struct, forbid_unknown_fields=True):
    klass: dict[str, Any] = msgspec.field(default_factory=dict, name="class")
    boundary: dict[str, Any] = {}
    info: dict[str, Any] = {}


class _Commit(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    branch: str | None = None
    time: str | None = None
    dirty: bool | None = None
    message: str | None = None


class _Rejected(msgspec.Struct):
    at: str
    reason: str
    name: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    benchmarks: list[Any]
    environment: _Environment = msgspec.field(default_factory=_Environment)
    commit: _Commit | None = None
    warnings: list[str] = []
    rejected: list[_Rejected] = []
    started_at: str | None = None


def _sniff(source: Source) -> bool:
    document = source.first_object
    return isinstance(document.get("format"), str) and isinstance(document.get("benchmarks"), list)


def _read(source: Source) -> Reading:
    try:
        file = convert(source.document, _File)
    except ItemError as error:
        raise FormatError(NAME, error.at or "$", error.reason) from None
    draft = Draft(
        NAME,
        klass=file.environment.klass,
        boundary=file.environment.boundary,
        info=file.environment.info,
        started_at=file.started_at,
        warnings=list(file.warnings),
    )
    for rejected in file.rejected:
        draft.reject(rejected.at, rejected.reason, rejected.name)
    if file.commit is not None:
        given = file.commit
        draft.commit = CommitReading(given.id, given.branch, given.time, given.dirty, given.message)
    for index, raw in enumerate(file.benchmarks):
        at = f"benchmarks[{index}]"
        with draft.item(at):
            _benchmark(draft, at, convert(raw, _Benchmark, at))
    return draft.finish()


def _benchmark(draft: Draft, at: str, given: _Benchmark) -> None:
    if given.status not in STATUSES:
        raise ItemError(f"status {given.status!r}; known are {', '.join(STATUSES)}", f"{at}.status")
    metrics: list[MetricReading] = []
    for index, raw in enumerate(given.metrics):
        place = f"{at}.metrics[{index}]"
        with draft.item(place, given.name):
            metrics.append(_metric(place, convert(raw, _Metric, place)))
    draft.add(
        given.name, metrics, params=given.params, status=given.status, reason=given.reason, version=given.version,
        notes=tuple(given.notes), info=given.info,
    )  # fmt: skip


def _metric(at: str, given: _Metric) -> MetricReading:
    if not _STATISTIC.fullmatch(given.statistic):
        known = "median, mean, min, max, rate, count, p90, p99, p999 or another percentile"
        raise ItemError(f"statistic {given.statistic!r}; known are {known}", f"{at}.statistic")
    if given.launch_values and len(given.launch_values) != len(given.launches):
        raise ItemError(f"{len(given.launch_values)} launch_values for {len(given.launches)} launches", at)
    made = metric(
        given.name,
        given.unit,
        lower_is_better="unit" if given.lower_is_better is msgspec.UNSET else given.lower_is_better,
        launches=given.launches,
        value=given.value,
        statistic=given.statistic,
        zero_allowed=True,
        partial=given.partial,
        successes_only=given.successes_only,
        no_tail=given.no_tail,
        flagged=tuple(
            Flagged(each.value if is_number(each.value) else None, each.reason) for each in given.flagged
        ),
        summary=given.summary,
    )
    values = metric(given.name, given.unit, launches=[given.launch_values], zero_allowed=True).launches[0]
    return replace(made, launch_values=values)


FORMAT = Format(NAME, "perfdb result", _sniff, _read, ('"format"', '"benchmarks"'))
