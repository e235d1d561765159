"""Catch2: what the console reporter prints for benchmarks. Only summaries, rounded as they are shown.

Three lines a benchmark: name with samples, iterations and estimate; mean with its bounds; deviation with its
bounds. A long name is broken over several lines. The name is test case, sections and benchmark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perfdb.formats.draft import Draft, metric, parse_number
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import Reading
from perfdb.formats.source import Line, Source

NAME = "catch2-text"
_HEADER = re.compile(r"^benchmark name +samples +iterations +est")
_TIME = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) (ns|us|ms|s|m)"
_FIRST = re.compile(rf"^(?P<name>.*?)\s*(?<!\S)(?P<samples>\d+)\s+(?P<iterations>\d+)\s+{_TIME}\s*$")
_THREE = re.compile(rf"^\s+{_TIME}\s+{_TIME}\s+{_TIME}\s*$")
_RULE = re.compile(r"^-{20,}$")
_END = re.compile(r"^(={20,}|\.{20,}|~{20,})$")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass
class _Console:
    """Where the reader stands in the output."""

    title: list[str] = field(default_factory=list)
    in_title: bool = False
    in_table: bool = False
    broken_name: list[str] = field(default_factory=list)
    open: re.Match[str] | None = None
    name: str = ""
    mean: re.Match[str] | None = None


def _sniff(source: Source) -> bool:
    return not source.is_json and any(_HEADER.match(line) for line in source.head.splitlines())


def _read(source: Source) -> Reading:
    draft, at = Draft(NAME), _Console()
    for line in source.lines():
        text = line.text.rstrip()
        if _HEADER.match(text):
            at.in_table, at.in_title = True, False
        elif _RULE.match(text):
            _rule(at)
        elif _END.match(text):
            at.in_table = at.in_title = False
        elif at.in_title:
            at.title.append(text.strip())
        elif at.in_table and text.strip():
            with draft.item(line.at):
                _row(draft, at, line)
    return draft.finish()


def _rule(at: _Console) -> None:
    """A rule opens a title, closes one, or ends the head of the table."""
    if at.in_table and at.open is None and not at.broken_name and not at.name:
        at.name = "table"  # the rule under the head
    elif at.in_title:
        at.in_title = False
    else:
        at.in_table, at.in_title, at.title = False, True, []
        at.open, at.name, at.broken_name = None, "", []


def _row(draft: Draft, at: _Console, line: Line) -> None:
    text = line.text.rstrip()
    if not at.name:
        return  # the two lines of the head that name the figures
    three = _THREE.match(text)
    if at.open is None:
        first = _FIRST.match(text)
        if first is None:
            at.broken_name.append(text.strip())
        else:
            at.open, at.mean = first, None
            at.name = " ".join(part for part in (*at.broken_name, first["name"].strip()) if part)
            at.broken_name = []
    elif three is None:
        name, at.open = at.name, None
        raise ItemError(f"{name}: expected a mean with its bounds, got {text.strip()[:60]!r}")
    elif at.mean is None:
        at.mean = three
    else:
        opened, mean, at.open = at.open, at.mean, None
        _benchmark(draft, [*at.title, at.name], opened, mean, three)


def _benchmark(
    draft: Draft, path: list[str], opened: re.Match[str], mean: re.Match[str], deviation: re.Match[str]
) -> None:
    unit = "min" if mean[2] == "m" else mean[2]
    factor = _SECONDS[mean[2]]
    summary = {
        "low_mean": float(mean[3]) * _SECONDS[mean[4]] / factor,
        "high_mean": float(mean[5]) * _SECONDS[mean[6]] / factor,
        "stddev": float(deviation[1]) * _SECONDS[deviation[2]] / factor,
        "samples": parse_number(opened["samples"]),
        "iterations": parse_number(opened["iterations"]),
    }
    parts = [part for place, part in enumerate(path) if part and part not in path[:place]]
    made = metric("time", unit, value=parse_number(mean[1], "mean"), statistic="mean", summary=summary)
    draft.add(" / ".join(parts), [made])


FORMAT = Format(NAME, "Catch2 console output", _sniff, _read)
