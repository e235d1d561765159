"""PyTorch HUD benchmark records, schema v3: an array, or one JSON object (or array) a line.

A record is one metric of one model: {benchmark, model, metric: {name, benchmark_values}}. The schema has neither
unit nor direction; both are known for some metric names and open for the rest. Integers are kept exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import CommitReading, Params, Reading
from perfdb.formats.source import Record, Source
from perfdb.formats.values import convert, finite, shown

NAME = "pytorch-hud-v3"
_RECORD_KEYS = {"benchmark", "metric", "repo", "workflow_id", "job_id", "head_sha", "head_branch", "runners"}
_CHANGING = re.compile(r"desc|time|date|path|url|sha$|commit|version|host|_id$|^id$|pid", re.IGNORECASE)
# By the metric's name: unit and direction. The first that matches.
_KNOWN: tuple[tuple[re.Pattern[str], str, bool | None], ...] = (
    (re.compile(r"instruction_count"), "instructions", True),
    # Rates first: "tokens_per_sec" ends like a time.
    (re.compile(r"tokens?(_per_|/)s(ec(ond)?)?|token\(s\)/s"), "tokens/s", False),
    (re.compile(r"(requests?|req)(_per_|/)s(ec(ond)?)?"), "requests/s", False),
    (re.compile(r"speedup|throughput"), "", False),
    (re.compile(r"_per_|/"), "", None),
    (re.compile(r"_ms$|\(ms\)$"), "ms", True),
    (re.compile(r"_(s|sec|seconds)$|\((s|sec|seconds)\)$"), "s", True),
    (re.compile(r"peak_mem|memory_usage|latency"), "", True),
)


class _Metric(msgspec.Struct):
    name: str
    benchmark_values: list[Any]


class _Benchmark(msgspec.Struct):
    name: str
    mode: str | None = None
    dtype: str | None = None
    extra_info: dict[str, Any] | None = None


class _Model(msgspec.Struct):
    name: str | None = None
    type: str | None = None
    backend: str | None = None


class _HudRecord(msgspec.Struct):
    benchmark: _Benchmark
    metric: _Metric
    model: _Model = msgspec.field(default_factory=_Model)
    head_sha: str | None = None
    head_branch: str | None = None
    runners: list[Any] | None = None


def _is_full(record: Any) -> bool:
    measured = record.get("metric") if isinstance(record, dict) else None
    return isinstance(measured, dict) and "benchmark_values" in measured and "benchmark" in record


def _sniff(source: Source) -> bool:
    records = source.first_array[:50] or ([source.first_object] if source.first_object else [])
    if any(_is_full(each) for each in records):
        return True
    # Records without a metric are told by the keys around it, and then rejected one by one.
    known = all(isinstance(each, dict) and each.keys() <= _ALLOWED for each in records)
    return bool(records) and known and any(each.keys() & _RECORD_KEYS for each in records)


_ALLOWED = _RECORD_KEYS | {
    "timestamp", "schema_version", "name", "model", "inputs", "dependencies", "run_attempt", "servicelab_experiment_id",
    "servicelab_trial_id", "extra_info", "job_name", "workflow_name",
}  # fmt: skip


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    for record in _records(draft, source):
        with draft.item(record.at):
            if not isinstance(record.value, dict):
                raise ItemError(f"expected a record, got {shown(record.value)}")
            missing = [key for key in ("benchmark", "metric") if key not in record.value]
            if missing:
                raise ItemError(f"a record without {' and '.join(missing)}")
            _record(draft, convert(record.value, _HudRecord, record.at))
    return draft.finish()


def _records(draft: Draft, source: Source) -> Iterator[Record]:
    for record in source.records():
        if isinstance(record, FormatError):
            draft.reject(record.at, record.reason)
        elif isinstance(record.value, list):
            at = "" if record.at == "$" else f"{record.at} "
            yield from (Record(f"{at}[{index}]", each) for index, each in enumerate(record.value))
        else:
            yield record


def _record(draft: Draft, record: _HudRecord) -> None:
    _environment(draft, record)
    if not record.metric.benchmark_values:
        raise ItemError("metric without values", "metric.benchmark_values")
    unit, lower = next(((u, d) for known, u, d in _KNOWN if known.search(record.metric.name)), ("", None))
    samples = [finite(value, "metric.benchmark_values") for value in record.metric.benchmark_values]
    made = metric(record.metric.name, unit, lower_is_better=lower, launches=[samples])
    model = record.model.name
    draft.add(
        f"{record.benchmark.name}/{model}" if model else record.benchmark.name,
        [made],
        params=_params(record),
        info={"description": (record.benchmark.extra_info or {}).get("description")},
        repeat="launches",
    )


def _params(record: _HudRecord) -> Params:
    params: Params = {
        key: value
        for key, value in (
            ("mode", record.benchmark.mode),
            ("dtype", record.benchmark.dtype),
            ("model_type", record.model.type),
            ("backend", record.model.backend),
        )
        if value
    }
    for key, value in (record.benchmark.extra_info or {}).items():
        if isinstance(value, (str, bool, int, float)) and not _CHANGING.search(key) and key not in params:
            params[key] = value
    return params


def _environment(draft: Draft, record: _HudRecord) -> None:
    if record.head_sha and draft.commit is None:
        draft.commit = CommitReading(record.head_sha, branch=record.head_branch)
    for runner in (record.runners or [])[:1]:
        if isinstance(runner, dict) and "runner" not in draft.klass:
            for key, name in (("type", "runner"), ("gpu_info", "gpu"), ("cpu_info", "cpu")):
                if isinstance(runner.get(key), str):
                    draft.klass[name] = runner[key]


FORMAT = Format(NAME, "PyTorch HUD v3", _sniff, _read, ('"benchmark_values"',))
