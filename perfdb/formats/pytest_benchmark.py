"""pytest-benchmark: `--benchmark-json` and the storage files under `.benchmarks`.

`stats` are seconds per call: `data` is already divided by `iterations`. Identity is `fullname`, because `params`
holds reprs with memory addresses. Files of 2.x lack `ops`, `params` and more.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.format import Format
from perfdb.formats.reading import CommitReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite

NAME = "pytest-benchmark"
_SUMMARY = ("min", "max", "median", "stddev", "iqr", "q1", "q3", "rounds", "iterations")


class _Stats(msgspec.Struct):
    mean: Number
    rounds: int | None = None
    data: list[Any] | None = None


class _Benchmark(msgspec.Struct):
    stats: dict[str, Any]
    fullname: str | None = None
    name: str | None = None
    group: str | None = None
    param: Any = None
    params: Any = None
    extra_info: Any = None


class _Commit(msgspec.Struct):
    id: str | None = None
    branch: str | None = None
    time: str | None = None
    dirty: bool | None = None


class _File(msgspec.Struct):
    benchmarks: list[Any]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] | None = None
    datetime: str | None = None
    version: str | None = None


def _sniff(source: Source) -> bool:
    document = source.first_object
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list):
        return False
    known = {"machine_info", "commit_info"} & document.keys()
    first = benchmarks[0] if benchmarks else None
    return bool(known) or (isinstance(first, dict) and {"stats", "fullname"} <= first.keys())


def _read(source: Source) -> Reading:
    file = convert(source.document, _File)
    draft = Draft(NAME, started_at=file.datetime)
    _environment(draft, file)
    with draft.item("commit_info"):
        if file.commit_info is not None:
            commit = convert(file.commit_info, _Commit)
            if commit.id:
                draft.commit = CommitReading(commit.id, commit.branch, commit.time, commit.dirty)
            if commit.dirty:
                draft.warn(
                    "commit_info: the working tree was dirty, so the commit alone does not explain the result"
                )
    for index, raw in enumerate(file.benchmarks):
        at = f"benchmarks[{index}]"
        with draft.item(at):
            _benchmark(draft, convert(raw, _Benchmark, at))
    return draft.finish()


def _environment(draft: Draft, file: _File) -> None:
    """Another interpreter, processor or system is another environment; the host's name and patch level are not."""
    machine = file.machine_info
    cpu = machine.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    version = machine.get("python_version")
    implementation = machine.get("python_implementation")
    if isinstance(version, str):
        draft.klass["python"] = f"{implementation or 'Python'} {'.'.join(version.split('.')[:2])}"
        draft.boundary["python_version"] = version
    draft.klass |= {
        key: value
        for key, value in (
            ("machine", machine.get("machine")),
            ("system", machine.get("system")),
            ("cpu", cpu.get("brand_raw") or cpu.get("brand")),
        )
        if isinstance(value, str)
    }
    draft.boundary |= {
        key: machine[key] for key in ("release", "python_compiler") if isinstance(machine.get(key), str)
    }
    draft.info |= {"node": machine.get("node"), "cpu_count": cpu.get("count"), "tool_version": file.version}


def _benchmark(draft: Draft, benchmark: _Benchmark) -> None:
    name = benchmark.fullname or benchmark.name or ""
    stats = convert(benchmark.stats, _Stats, "stats")
    data = stats.data or []
    # Some publish files with the list cut short and a word in its place.
    samples = [finite(each, "stats.data") for each in data if not isinstance(each, str)]
    partial = bool(data) and (
        len(samples) < len(data) or (stats.rounds is not None and len(samples) < stats.rounds)
    )
    summary = {
        key: benchmark.stats[key]
        for key in _SUMMARY
        if isinstance(benchmark.stats.get(key), (int, float)) and not isinstance(benchmark.stats[key], bool)
    }
    time = metric(
        "time", "s", launches=[samples], value=stats.mean, statistic="mean", partial=partial, summary=summary
    )
    info = {"group": benchmark.group, "param": benchmark.param, "extra_info": benchmark.extra_info or None}
    draft.add(name, [time], info=info)


FORMAT = Format(NAME, "pytest-benchmark JSON", _sniff, _read, ('"benchmarks"', '"machine_info"'))
