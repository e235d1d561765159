"""Catch2: what the console reporter prints for benchmarks. Only summaries, rounded as they are shown.

Three lines a benchmark: name with samples, iterations and estimate; mean with its bounds; deviation with its
bounds. A long name is broken over several lines. The name is test case, sections and benchmark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import Reading
from perfdb.formats.source import Line, Source
from perfdb.formats.values import parse_number

NAME = "catch2-text"
_HEADER = re.compile(r"^benchmark name +samples +iterations +est")
_NUMBER = re.compile(r"\d{1,300}(\.\d{1,300})?(e[+-]?\d{1,3})?")
_MAX_NAME_LINES = 20
_COUNT = re.compile(r"\d{1,18}")
_RULE = re.compile(r"^-{20,}$")
_END = re.compile(r"^(={20,}|\.{20,}|~{20,})$")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class _First:
    """The first line of a benchmark. name is the rest of the name that stands on it."""

    name: str
    samples: int
    iterations: int


@dataclass(frozen=True)
class _Times:
    """A line of three times, in seconds but for `shown`, which is the first as printed."""

    shown: str
    unit: str
    seconds: tuple[float, float, float]


@dataclass
class _Console:
    """Where the reader stands in the output."""

    title: list[str] = field(default_factory=list)
    in_title: bool = False
    in_head: bool = False
    in_table: bool = False
    broken_name: list[str] = field(default_factory=list)
    open: _First | None = None
    name: str = ""
    mean: _Times | None = None


def _sniff(source: Source) -> bool:
    return not source.is_json and any(_HEADER.match(line) for line in source.head.splitlines())


def _read(source: Source) -> Reading:
    draft, at = Draft(NAME), _Console()
    for line in source.lines():
        text = line.text.rstrip()
        if _HEADER.match(text):
            at.in_head, at.in_title = True, False
        elif _RULE.match(text):
            _rule(at)
        elif _END.match(text):
            at.in_table = at.in_title = False
        elif at.in_title and len(at.title) < _MAX_NAME_LINES:
            at.title.append(text.strip())
        elif at.in_table and text.strip():
            with draft.item(line.at):
                _row(draft, at, line)
    return draft.finish()


def _rule(at: _Console) -> None:
    """A rule ends the head of a table, closes a title, or opens one."""
    if at.in_head:
        at.in_head, at.in_table = False, True
    elif at.in_title:
        at.in_title = False
    else:
        at.in_table, at.in_title, at.title = False, True, []
        at.open, at.broken_name = None, []


def _row(draft: Draft, at: _Console, line: Line) -> None:
    text = line.text.rstrip()
    if at.open is None:
        first = _first(text)
        if first is None:
            at.broken_name = [*at.broken_name, text.strip()][-_MAX_NAME_LINES:]
        else:
            at.open, at.mean = first, None
            at.name = " ".join(part for part in (*at.broken_name, first.name) if part)
            at.broken_name = []
        return
    three = _times(text)
    if three is None:
        name, at.open = at.name, None
        raise ItemError(f"{name}: expected a mean with its bounds, got {text.strip()[:60]!r}")
    elif at.mean is None:
        at.mean = three
    else:
        opened, mean, at.open = at.open, at.mean, None
        _benchmark(draft, [*at.title, at.name], opened, mean, three)


def _first(text: str) -> _First | None:
    """`name  samples  iterations  estimate unit`, read from the right; the name may stand on the lines before."""
    words = text.rsplit(None, 4)
    if len(words) < 4:
        return None
    samples, iterations, estimate, unit = words[-4:]
    counted = _COUNT.fullmatch(samples) and _COUNT.fullmatch(iterations)
    if not counted or not _NUMBER.fullmatch(estimate) or unit not in _SECONDS:
        return None
    return _First(" ".join(words[:-4]).strip(), int(samples), int(iterations))


def _times(text: str) -> _Times | None:
    words = text.split(None, 6)
    if len(words) != 6 or not text.startswith(" "):
        return None
    numbers, units = words[::2], words[1::2]
    if not all(_NUMBER.fullmatch(number) for number in numbers) or not set(units) <= _SECONDS.keys():
        return None
    first, second, third = (
        float(number) * _SECONDS[unit] for number, unit in zip(numbers, units, strict=True)
    )
    return _Times(numbers[0], units[0], (first, second, third))


def _benchmark(draft: Draft, path: list[str], opened: _First, mean: _Times, deviation: _Times) -> None:
    factor = _SECONDS[mean.unit]
    summary = {
        "low_mean": mean.seconds[1] / factor,
        "high_mean": mean.seconds[2] / factor,
        "stddev": deviation.seconds[0] / factor,
        "samples": opened.samples,
        "iterations": opened.iterations,
    }
    parts = [part for place, part in enumerate(path) if part and part not in path[:place]]
    unit = "min" if mean.unit == "m" else mean.unit
    made = metric("time", unit, value=parse_number(mean.shown, "mean"), statistic="mean", summary=summary)
    draft.add(" / ".join(parts), [made])


FORMAT = Format(NAME, "Catch2 console output", _sniff, _read)
