"""nvbench: `--json` (numbers are strings, summaries an array by tag or, before 2022, an object by name) and `--csv`.

The CSV has two columns named Noise and two named Samples, one of each for CPU and GPU: they are told apart by
the time column beside them. Noise is a fraction. A single sample has noise `inf`: it says nothing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Params, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite, parse_number, shown

JSON_NAME = "nvbench-json"
CSV_NAME = "nvbench-csv"

# Summary tag, metric, unit. The relative noise of a time stands under its own tag.
_TAGS = {
    "nv/cold/time/gpu/mean": ("gpu_time", "s"),
    "nv/cold/time/cpu/mean": ("cpu_time", "s"),
    "nv/batch/time/gpu/mean": ("batch_gpu_time", "s"),
    "nv/cpu_only/time/cpu/mean": ("cpu_time", "s"),
    "nv/cold/bw/item_rate": ("item_rate", "items/s"),
    "nv/cold/bw/global/bytes_per_second": ("global_memory_bandwidth", "bytes/s"),
}
_NOISE_TAGS = {"gpu_time": "nv/cold/time/gpu/stdev/relative", "cpu_time": "nv/cold/time/cpu/stdev/relative"}
_SAMPLE_TAGS = {"gpu_time": "nv/cold/sample_size", "cpu_time": "nv/cold/sample_size"}
_UNIT_BY_HINT = {
    "duration": "s",
    "item_rate": "items/s",
    "byte_rate": "bytes/s",
    "bytes": "bytes",
    "frequency": "Hz",
    "percentage": "ratio",
}
_OLD_NAMES = {
    "Average GPU Time (Cold)": "nv/cold/time/gpu/mean",
    "Average CPU Time (Cold)": "nv/cold/time/cpu/mean",
    "Average GPU Time (Batch)": "nv/batch/time/gpu/mean",
    "Average GPU Time (Hot)": "nv/batch/time/gpu/mean",
    "GPU Relative Standard Deviation (Cold)": "nv/cold/time/gpu/stdev/relative",
    "CPU Relative Standard Deviation (Cold)": "nv/cold/time/cpu/stdev/relative",
    "Number of Samples (Cold)": "nv/cold/sample_size",
    "Element Throughput": "nv/cold/bw/item_rate",
    "Average Global Memory Throughput": "nv/cold/bw/global/bytes_per_second",
}
_CSV_METRICS = {
    "GPU Time (sec)": ("gpu_time", "s"),
    "CPU Time (sec)": ("cpu_time", "s"),
    "Batch GPU (sec)": ("batch_gpu_time", "s"),
    "Elem/s (elem/sec)": ("item_rate", "items/s"),
    "GlobalMem BW (bytes/sec)": ("global_memory_bandwidth", "bytes/s"),
}
_CSV_FIXED = ("Benchmark", "Device", "Device Name", "Skipped")


class _Named(msgspec.Struct):
    name: str
    value: Any = None
    type: str | None = None


class _State(msgspec.Struct):
    axis_values: list[_Named] | None = None
    summaries: Any = None
    device: Any = None
    is_skipped: bool = False
    skip_reason: str | None = None


def _sniff_json(source: Source) -> bool:
    benchmarks = source.first_object.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        return False
    return isinstance(benchmarks[0], dict) and "states" in benchmarks[0]


def _read_json(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
        raise source.error("$", "expected an object with an array `benchmarks`")
    draft = Draft(JSON_NAME)
    devices = _devices(draft, document)
    for index, benchmark in enumerate(document["benchmarks"]):
        at = f"benchmarks[{index}]"
        with draft.item(at):
            name = benchmark.get("name") if isinstance(benchmark, dict) else None
            if not isinstance(name, str):
                raise ItemError("no name")
            states = benchmark.get("states")
            for place, raw in enumerate(states if isinstance(states, list) else []):
                with draft.item(f"{at}.states[{place}]", name):
                    state = convert(raw, _State, f"{at}.states[{place}]")
                    _state(draft, name, state, devices if len(devices) > 1 else {})
    return draft.finish()


def _devices(draft: Draft, document: dict[str, Any]) -> dict[str, str]:
    """Names of the devices by id; they go into the environment's class."""
    devices = document.get("devices")
    names: dict[str, str] = {}
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            names[str(device.get("id"))] = device["name"]
    if names:
        draft.klass["gpu"] = " + ".join(sorted(set(names.values())))
    meta = document.get("meta")
    version = meta.get("version") if isinstance(meta, dict) else None
    tool = version.get("nvbench") if isinstance(version, dict) else None
    if isinstance(tool, dict):
        draft.boundary["nvbench"] = str(tool.get("string") or tool.get("git_version"))[:100]
    return names


def _state(draft: Draft, name: str, state: _State, devices: dict[str, str]) -> None:
    params: Params = {axis.name: _plain(axis.value) for axis in state.axis_values or []}
    if devices and state.device is not None:
        params["device"] = devices.get(str(state.device), str(state.device))
    if state.is_skipped:
        draft.add(name, params=params, status="skipped", reason=state.skip_reason or "skipped")
        return
    values = _summaries(state.summaries)
    metrics: list[MetricReading] = []
    for tag, (label, unit) in _TAGS.items():
        if tag in values and all(made.name != label for made in metrics):
            with draft.item(tag, name):
                metrics.append(_with_noise(_figure(label, unit, values[tag]), values))
    metrics += _own_summaries(draft, name, state.summaries, {made.name for made in metrics})
    draft.add(name, metrics, params=params)


def _own_summaries(draft: Draft, name: str, raw: Any, taken: set[str]) -> list[MetricReading]:
    """What the benchmark itself adds (peak memory, FLOP/s): the hint says the unit, and only a unit a direction."""
    made: list[MetricReading] = []
    for each in raw if isinstance(raw, list) else []:
        tag = each.get("tag") if isinstance(each, dict) else None
        if not isinstance(tag, str) or tag.startswith("nv/") or tag in taken:
            continue
        value = _summaries([each]).get(tag)
        if value is None:
            continue
        with draft.item(tag, name):
            taken.add(tag)
            made.append(_figure(tag, _UNIT_BY_HINT.get(str(each.get("hint")), ""), value))
    return made


def _figure(label: str, unit: str, value: Any) -> MetricReading:
    return metric(label, unit, value=_number(value), statistic="mean")


def _with_noise(made: MetricReading, values: dict[str, Any]) -> MetricReading:
    noise, count = values.get(_NOISE_TAGS.get(made.name, "")), values.get(_SAMPLE_TAGS.get(made.name, ""))
    return _marked(made, noise, count)


def _marked(made: MetricReading, noise: Any, count: Any) -> MetricReading:
    """The noise as a fraction and the number of samples; a noise of inf is no number and says "cannot tell"."""
    summary: dict[str, Any] = {}
    for key, value in (("noise_fraction", noise), ("samples", count)):
        if value in (None, ""):
            continue
        try:
            summary[key] = _number(value)
        except ItemError:
            summary[key] = None
    return replace(made, summary=summary)


def _number(value: Any) -> Number:
    return parse_number(value) if isinstance(value, str) else finite(value)


def _plain(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    return value if isinstance(value, (str, int, float)) else shown(value)


def _summaries(raw: Any) -> dict[str, Any]:
    """The value of each summary by its tag."""
    entries: list[tuple[Any, Any]] = []
    if isinstance(raw, list):
        entries = [(each.get("tag"), each.get("data")) for each in raw if isinstance(each, dict)]
    elif isinstance(raw, dict):
        for name, body in raw.items():
            entries.append(
                (_OLD_NAMES.get(name, name), body.get("values") if isinstance(body, dict) else None)
            )
    found: dict[str, Any] = {}
    for tag, data in entries:
        for each in data if isinstance(data, list) else []:
            if isinstance(tag, str) and isinstance(each, dict) and each.get("name") == "value":
                found[tag] = each.get("value")
    return found


# -- CSV -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """Where things stand in a row. noise and samples: column of each metric's companion."""

    names: list[str]
    axes: list[int]
    metrics: dict[int, tuple[str, str]]
    noise: dict[int, int]
    samples: dict[int, int]

    def of(self, name: str) -> int | None:
        return self.names.index(name) if name in self.names else None


def _sniff_csv(source: Source) -> bool:
    return re.match(r"\s*Benchmark,Device,Device Name,", source.head) is not None


def _read_csv(source: Source) -> Reading:
    draft = Draft(CSV_NAME)
    columns: _Columns | None = None
    devices: set[str] = set()
    for at, row in _rows(source):
        if row[:2] == ["Benchmark", "Device"]:
            columns = _columns(row)
            continue
        if columns is None:
            raise source.error(at, "no header line `Benchmark,Device,Device Name,...` before the first row")
        with draft.item(at, row[0]):
            if len(row) != len(columns.names):
                raise ItemError(f"{len(row)} cells, the header has {len(columns.names)}")
            devices.add(row[2])
            _csv_row(draft, columns, row)
    if devices - {""}:
        draft.klass["gpu"] = " + ".join(sorted(devices - {""}))
    return draft.finish()


def _rows(source: Source) -> Iterator[tuple[str, list[str]]]:
    for line in source.lines():
        if line.text.strip():
            try:
                yield line.at, next(csv.reader([line.text], strict=True))
            except csv.Error as error:
                raise source.error(line.at, str(error)) from None


def _columns(header: list[str]) -> _Columns:
    skipped = header.index("Skipped") if "Skipped" in header else 3
    axes = [
        place
        for place, name in enumerate(header[:skipped])
        if name not in _CSV_FIXED
        and not (name.endswith(" (pow2)") and name.removesuffix(" (pow2)") in header)
    ]
    metrics = {place: _CSV_METRICS[name] for place, name in enumerate(header) if name in _CSV_METRICS}
    # Noise follows its time; Samples comes before the first time of its measurement (cold, then batch).
    noise = {place: place + 1 for place in metrics if header[place + 1 : place + 2] == ["Noise"]}
    samples: dict[int, int] = {}
    counted = [place for place, name in enumerate(header) if name == "Samples"]
    for place, (label, unit) in metrics.items():
        before = [each for each in counted if each < place]
        if unit == "s" and before:
            samples[place] = before[0] if label in ("cpu_time", "gpu_time") else before[-1]
    return _Columns(header, axes, metrics, noise, samples)


def _csv_row(draft: Draft, columns: _Columns, row: list[str]) -> None:
    params: Params = {columns.names[place]: _plain(row[place]) for place in columns.axes if row[place] != ""}
    device = columns.of("Device")
    if device is not None and row[device] not in ("", "0"):
        params["device"] = _plain(row[device])
    skipped = columns.of("Skipped")
    if skipped is not None and row[skipped] == "Yes":
        draft.add(row[0], params=params, status="skipped", reason="skipped")
        return
    metrics: list[MetricReading] = []
    for place, (label, unit) in columns.metrics.items():
        if row[place] == "":
            continue
        with draft.item(columns.names[place], row[0]):
            noise = row[columns.noise[place]] if place in columns.noise else None
            count = row[columns.samples[place]] if place in columns.samples else None
            metrics.append(_marked(_figure(label, unit, row[place]), noise, count))
    draft.add(row[0], metrics, params=params)


JSON_FORMAT = Format(JSON_NAME, "nvbench JSON", _sniff_json, _read_json, ('"states"', '"axis_values"'))
CSV_FORMAT = Format(CSV_NAME, "nvbench CSV", _sniff_csv, _read_csv)
