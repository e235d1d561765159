"""Readers of foreign result formats: one file each, one signature, told apart by content and never by name.

    >>> from perfdb.formats import read
    >>> reading = read("results.json")

The package imports the standard library, msgspec and `perfdb.units` only.
"""

from __future__ import annotations

import os
from dataclasses import replace

from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.reading import (
    BenchmarkReading,
    CommitReading,
    EnvironmentReading,
    MetricReading,
    Reading,
    Rejection,
)
from perfdb.formats.registry import ALIASES, FORMATS, Format
from perfdb.formats.source import MAX_BYTES, Source, open_source

__all__ = [
    "FORMATS",
    "MAX_BYTES",
    "BenchmarkReading",
    "CommitReading",
    "EnvironmentReading",
    "Format",
    "FormatError",
    "ItemError",
    "MetricReading",
    "Reading",
    "Rejection",
    "declared",
    "detect",
    "read",
]


def read(
    data: bytes | str | os.PathLike[str],
    format: str = "auto",
    *,
    lower_is_better: bool | None = None,
    max_bytes: int = MAX_BYTES,
) -> Reading:
    """Read one result: bytes are its content, a string or path names a file.

    format: a key of FORMATS or ALIASES, or "auto" to tell by the content. lower_is_better: declares the direction
    of the metrics for which neither format nor unit has one. max_bytes: cap on the unpacked size.
    Raises FormatError, with the format tried, the position and the reason; nothing is returned then.
    """
    source = open_source(data, max_bytes=max_bytes)
    chosen = detect(source) if format == "auto" else _named(format, source)
    source.format = chosen.name
    try:
        reading = chosen.read(source)
    except ItemError as error:
        raise FormatError(chosen.name, error.at, error.reason) from None
    except ArithmeticError:
        raise FormatError(chosen.name, "$", "numbers out of range") from None
    return reading if lower_is_better is None else declared(reading, lower_is_better=lower_is_better)


def detect(source: Source) -> Format:
    """The one format whose reader recognises the content. Raises FormatError where none does."""
    if not source.head.strip():
        raise FormatError("auto", "byte 0", "empty: nothing was measured, and that is not a pass")
    try:
        for candidate in FORMATS.values():
            if candidate.sniff(source):
                return candidate
    except FormatError as error:
        # The text is no valid JSON at all: name the format whose words it holds.
        guess = next((each.name for each in FORMATS.values() if each.marked(source.head)), "auto")
        raise FormatError(guess, error.at, error.reason) from None
    raise FormatError("auto", "line 1", f"no known format; tried {', '.join(FORMATS)}")


def _named(name: str, source: Source) -> Format:
    candidates = [FORMATS[each] for each in ALIASES.get(name, (name,)) if each in FORMATS]
    if not candidates:
        raise FormatError(name, "", f"no such format; known: {', '.join((*FORMATS, *ALIASES))}")
    if not source.head.strip():
        raise FormatError(name, "byte 0", "empty: nothing was measured, and that is not a pass")
    source.format = candidates[0].name
    if len(candidates) == 1:
        return candidates[0]
    return next((each for each in candidates if each.sniff(source)), candidates[0])


def declared(reading: Reading, *, lower_is_better: bool) -> Reading:
    """The reading with this direction wherever it had none."""

    def of(metric: MetricReading) -> MetricReading:
        return replace(metric, lower_is_better=lower_is_better) if metric.lower_is_better is None else metric

    benchmarks = tuple(
        replace(each, metrics=tuple(of(metric) for metric in each.metrics)) for each in reading.benchmarks
    )
    warnings = tuple(each for each in reading.warnings if not each.startswith("direction: "))
    return replace(reading, benchmarks=benchmarks, warnings=warnings)
