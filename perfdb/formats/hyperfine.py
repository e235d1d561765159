"""hyperfine: `--export-json`. Always seconds, whatever unit the screen showed.

Every timed run is a process of its own, so every sample is a launch. Under `--ignore-failure` runs with another
exit code than 0 are in the file: they are flagged out, and the file's own mean, which counts them, is not used.
"""

from __future__ import annotations

import statistics
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import Flagged, MetricReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite

NAME = "hyperfine"


class _Result(msgspec.Struct):
    command: str
    mean: Number | None = None
    stddev: Number | None = None
    median: Number | None = None
    user: Number | None = None
    system: Number | None = None
    min: Number | None = None
    max: Number | None = None
    times: list[Any] | None = None
    exit_codes: list[Any] | None = None
    memory_usage_byte: list[Any] | None = None
    parameters: dict[str, Any] = {}


def _sniff(source: Source) -> bool:
    results = source.first_object.get("results")
    if not isinstance(results, list):
        return False
    first = results[0] if results else None
    return isinstance(first, dict) and "command" in first and bool({"mean", "times"} & first.keys())


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise source.error("$", "expected an object with an array `results`")
    draft = Draft(NAME)
    for index, raw in enumerate(document["results"]):
        at = f"results[{index}]"
        with draft.item(at):
            _result(draft, convert(raw, _Result, at))
    return draft.finish()


def _result(draft: Draft, result: _Result) -> None:
    times = result.times or []
    codes = result.exit_codes or [0] * len(times)
    if len(codes) != len(times):
        raise ItemError(f"{len(times)} times but {len(codes)} exit codes")
    good = [index for index, code in enumerate(codes) if code == 0 and not isinstance(code, bool)]
    flagged = tuple(
        Flagged(finite(times[index], f"times[{index}]"), _exit_reason(code))
        for index, code in enumerate(codes)
        if index not in set(good)
    )
    status, reason = ("ok", "")
    if times and not good:
        status, reason = "error", f"none of {len(times)} runs ended with exit code 0"
    metrics = [_wall_time(result, good, flagged)]
    if not flagged:
        metrics += draft.metrics(
            result.command,
            lambda: _cpu("user_time", result.user),
            lambda: _cpu("system_time", result.system),
            lambda: _memory(result.memory_usage_byte),
        )
    notes = (f"{len(flagged)} of {len(times)} runs failed",) if flagged else ()
    draft.add(result.command, metrics, params=result.parameters, status=status, reason=reason, notes=notes)


def _exit_reason(code: Any) -> str:
    return "no exit code (ended by a signal)" if code is None else f"exit code {str(code)[:20]}"


def _wall_time(result: _Result, good: list[int], flagged: tuple[Flagged, ...]) -> MetricReading:
    times = result.times or []
    samples = [finite(times[index], f"times[{index}]") for index in good]
    value = result.mean
    if flagged:
        value = statistics.fmean(samples) if samples else None
    elif value is None and not samples:
        raise ItemError("neither mean nor times")
    summary = {
        key: getattr(result, key)
        for key in ("stddev", "median", "min", "max")
        if getattr(result, key) is not None
    }
    launches = [[sample] for sample in samples] if times else [[]]
    return metric(
        "time", "s", launches=launches, value=value, statistic="mean", flagged=flagged,
        summary={} if flagged else summary,
    )  # fmt: skip


def _cpu(name: str, value: Number | None) -> MetricReading | None:
    return None if value is None else metric(name, "s", value=value, statistic="mean", zero_allowed=True)


def _memory(peaks: list[Any] | None) -> MetricReading | None:
    if not peaks:
        return None
    return metric("peak_memory", "bytes", lower_is_better=True, launches=[[peak] for peak in peaks])


FORMAT = Format(NAME, "hyperfine JSON", _sniff, _read, ('"results"', '"command"'))
