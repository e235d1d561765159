"""Rust's libtest (`cargo bench`), and criterion's `--output-format bencher`.

`test name ... bench:  13,967,756.30 ns/iter (+/- 266,769.64)`: a median and half the spread, with thousands
separators and, in newer versions, decimals.
"""

from __future__ import annotations

import re

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import parse_number, shown

NAME = "cargo-bench"
_MARK = " ... bench:"
_FIGURES = re.compile(r"([\d,.]+) (\S+)(?: \(\+/- ([\d,.]+)\))?(?: = ([\d,.]+) ([KMG]?B/s))?$")


def _sniff(source: Source) -> bool:
    return any(line.startswith("test ") and _MARK in line for line in source.head.splitlines())


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    for line in source.lines():
        text = line.text.strip()
        if not text.startswith("test "):
            continue
        before, mark, after = text.partition(_MARK)
        if mark:
            name = before.removeprefix("test ").strip()
            with draft.item(line.at, name):
                draft.add(name, _metrics(after.strip()))
        elif text.endswith(" ... FAILED"):
            name = text.removeprefix("test ").removesuffix(" ... FAILED").strip()
            with draft.item(line.at, name):
                draft.add(name, status="error", reason="FAILED")
    return draft.finish()


def _metrics(figures: str) -> list[MetricReading]:
    match = _FIGURES.match(figures)
    if match is None:
        raise ItemError(f"expected `<value> <unit> (+/- <spread>)`, got {shown(figures)}")
    value, unit, spread, rate, rate_unit = match.groups()
    summary = {} if spread is None else {"range": parse_number(spread, "range")}
    label = "time" if "/iter" in unit else "value"
    made = [metric(label, unit, value=parse_number(value, "bench"), statistic="median", summary=summary)]
    if rate is not None:
        made.append(metric("throughput", rate_unit, value=parse_number(rate), statistic="median"))
    return made


FORMAT = Format(NAME, "cargo bench (libtest) text", _sniff, _read)
