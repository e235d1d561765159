"""criterion.rs: `estimates.json`, `sample.json` and `benchmark.json` of one benchmark, or the messages of
`cargo criterion --message-format=json`.

The three files stand side by side; whichever is named, the others are found beside it. In linear and flat mode
alike `times` are totals over `iters`: a sample is times[i] / iters[i]. The headline is the slope where there is
one (linear mode), else the mean. Values are nanoseconds. `base` holds the previous run and is never read as a
second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.jsontext import parse_json
from perfdb.formats.reading import MetricReading, Number, Reading
from perfdb.formats.source import Record, Source, open_source
from perfdb.formats.values import convert, finite

NAME = "criterion"
_ESTIMATES = ("mean", "median", "slope", "std_dev", "median_abs_dev")


class _Sample(msgspec.Struct):
    iters: list[Any]
    times: list[Any]
    sampling_mode: str = ""


class _Message(msgspec.Struct):
    id: str
    iteration_count: list[Any]
    measured_values: list[Any]
    unit: str = "ns"
    typical: dict[str, Any] | None = None
    mean: dict[str, Any] | None = None
    median: dict[str, Any] | None = None
    slope: dict[str, Any] | None = None
    throughput: list[Any] | None = None


@dataclass
class _Trio:
    """The parsed content of the files of one benchmark; None where one is not there."""

    estimates: dict[str, Any] | None = None
    sample: dict[str, Any] | None = None
    benchmark: dict[str, Any] | None = None


def _kind(document: dict[str, Any]) -> str | None:
    if {"iters", "times"} <= document.keys():
        return "sample"
    if {"group_id", "full_id"} <= document.keys() or {
        "group_id",
        "function_id",
        "directory_name",
    } <= document.keys():
        return "benchmark"
    mean = document.get("mean")
    if (
        "median" in document
        and isinstance(mean, dict)
        and {"point_estimate", "confidence_interval"} <= mean.keys()
    ):
        return "estimates"
    return None


def _sniff(source: Source) -> bool:
    document = source.first_object
    reason = document.get("reason")
    return _kind(document) is not None or reason in ("benchmark-complete", "group-complete")


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    if source.is_json_lines or "reason" in source.first_object:
        _messages(draft, source)
        return draft.finish()
    document = source.document
    kind = _kind(document) if isinstance(document, dict) else None
    if kind is None:
        raise source.error("$", "neither estimates, sample nor benchmark of criterion")
    trio = _Trio(**{kind: document})
    if source.path is not None:
        _beside(draft, trio, source, source.path, kind)
    _trio(draft, trio, source)
    return draft.finish()


def _beside(draft: Draft, trio: _Trio, source: Source, path: Path, kind: str) -> None:
    """Fill in the other files: same folder and name but for the kind; benchmark.json may be with `new` only."""
    if kind not in path.name:
        return
    before, _, after = path.name.rpartition(kind)
    for other in ("estimates", "sample", "benchmark"):
        if other == kind:
            continue
        candidates = [path.with_name(f"{before}{other}{after}")]
        if other == "benchmark":
            candidates.append(path.with_name(f"{before.replace('base', 'new')}{other}{after}"))
            candidates.append(path.parent.parent / "new" / f"{before}{other}{after}")
        found = next((each for each in candidates if each.is_file()), None)
        if found is None:
            continue
        try:
            document = parse_json(open_source(found, max_bytes=source.max_bytes).text, format=NAME)
        except FormatError as error:
            draft.warn(f"{found.name} is not used: {error.at}: {error.reason}")
            continue
        if isinstance(document, dict) and _kind(document) == other:
            setattr(trio, other, document)


def _trio(draft: Draft, trio: _Trio, source: Source) -> None:
    if trio.estimates is None and trio.sample is None:
        raise source.error(
            "$", "benchmark.json names a benchmark but holds no result, and none stands beside it"
        )
    described = trio.benchmark or {}
    name = described.get("full_id") or described.get("title") or described.get("directory_name")
    if not isinstance(name, str) or not name:
        name = _name_by_folder(source)
    samples, mode = _samples(trio.sample) if trio.sample is not None else ([], "")
    if mode == "Linear" and trio.estimates is None:
        value: Number | None = _slope(trio.sample or {})
        summary: dict[str, Any] = {"estimate": "slope"}
    else:
        value, summary = _headline(trio.estimates)
    time = metric("time", "ns", launches=[samples], value=value, statistic="mean", summary=summary)
    draft.add(name, [time, *_throughput(draft, described.get("throughput"), time.value)], info={"mode": mode})


def _name_by_folder(source: Source) -> str:
    """criterion keeps a result under <group>/<function>/<value>/new; without benchmark.json that is its name."""
    path = source.path
    if path is not None and path.parent.name in ("new", "base"):
        parts = path.absolute().parent.parent.parts
        inside = parts[parts.index("criterion") + 1 :] if "criterion" in parts else parts[-1:]
        if inside:
            return "/".join(inside)
    raise source.error("$", "these files hold no name: name the benchmark.json, or keep it beside them")


def _samples(raw: dict[str, Any]) -> tuple[list[Number], str]:
    sample = convert(raw, _Sample, "sample")
    if len(sample.iters) != len(sample.times):
        raise ItemError(f"{len(sample.times)} times for {len(sample.iters)} iters", "sample")
    return [_per_iteration(time, count) for time, count in zip(sample.times, sample.iters, strict=True)], (
        sample.sampling_mode
    )


def _per_iteration(total: Any, count: Any) -> Number:
    total, count = finite(total, "times"), finite(count, "iters")
    if count <= 0:
        raise ItemError(f"a sample over {count} iterations", "iters")
    return finite(total / count, "times")


def _slope(raw: dict[str, Any]) -> float:
    """Least squares through the origin, as criterion fits it: sum(iters * times) / sum(iters^2)."""
    sample = convert(raw, _Sample, "sample")
    pairs = [(float(finite(n)), float(finite(t))) for n, t in zip(sample.iters, sample.times, strict=True)]
    squares = sum(n * n for n, _ in pairs)
    if not squares:
        raise ItemError("no iterations", "sample")
    return sum(n * t for n, t in pairs) / squares


def _headline(estimates: dict[str, Any] | None) -> tuple[Number | None, dict[str, Any]]:
    points: dict[str, Any] = {}
    for key in _ESTIMATES:
        estimate = (estimates or {}).get(key)
        if isinstance(estimate, dict) and "point_estimate" in estimate:
            points[key] = finite(estimate["point_estimate"], key)
    chosen = "slope" if "slope" in points else "mean" if "mean" in points else None
    return (points[chosen], points | {"estimate": chosen}) if chosen else (None, {})


def _throughput(draft: Draft, declared: Any, time_ns: Number | None) -> list[MetricReading]:
    """Work per iteration that the benchmark declares, as a rate."""
    if not isinstance(declared, dict) or not time_ns:
        return []
    units = {"Bytes": "bytes/s", "BytesDecimal": "bytes/s", "Elements": "elements/s"}
    made: list[MetricReading] = []
    for kind, amount in declared.items():
        if kind in units:
            with draft.item(f"throughput.{kind}"):
                rate = finite(amount) / time_ns * 1e9
                made.append(metric("throughput", units[kind], value=rate, statistic="mean"))
    return made


def _messages(draft: Draft, source: Source) -> None:
    for record in source.records():
        if isinstance(record, FormatError):
            draft.reject(record.at, record.reason)
            continue
        if isinstance(record.value, dict) and record.value.get("reason") == "benchmark-complete":
            with draft.item(record.at):
                _message(draft, record)


def _message(draft: Draft, record: Record) -> None:
    message = convert(record.value, _Message, record.at)
    if len(message.iteration_count) != len(message.measured_values):
        raise ItemError(f"{len(message.measured_values)} values for {len(message.iteration_count)} counts")
    pairs = zip(message.measured_values, message.iteration_count, strict=True)
    samples = [_per_iteration(total, count) for total, count in pairs]
    estimate = message.typical or message.slope or message.mean or {}
    value = finite(estimate["estimate"], "typical") if "estimate" in estimate else None
    summary = {
        key: given["estimate"]
        for key in ("mean", "median", "slope")
        if isinstance(given := getattr(message, key), dict)
        and isinstance(given.get("estimate"), (int, float))
    }
    time = metric("time", message.unit, launches=[samples], value=value, statistic="mean", summary=summary)
    draft.add(message.id, [time])


FORMAT = Format(NAME, "criterion.rs JSON", _sniff, _read, ('"point_estimate"',))
