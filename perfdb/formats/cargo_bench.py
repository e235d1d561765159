"""Rust's libtest (`cargo bench`), and criterion's `--output-format bencher`.

`test name ... bench:  13,967,756.30 ns/iter (+/- 266,769.64)`: a median and half the spread, with thousands
separators and, in newer versions, decimals.
"""

from __future__ import annotations

import re

from perfdb.formats.draft import Draft, metric, parse_number
from perfdb.formats.format import Format
from perfdb.formats.reading import Reading
from perfdb.formats.source import Source

NAME = "cargo-bench"
_LINE = re.compile(
    r"^test (?P<name>.+?)\s+\.\.\. bench:\s+(?P<value>[\d,.]+) (?P<unit>\S+)(?: \(\+/- (?P<range>[\d,.]+)\))?"
)
_RATE = re.compile(r"\) = (?P<value>[\d,.]+) (?P<unit>[KMG]?B/s)\s*$")
_FAILED = re.compile(r"^test (?P<name>.+?)\s+\.\.\. FAILED$")


def _sniff(source: Source) -> bool:
    return re.search(r"(?m)^test .+ \.\.\. bench: ", source.head) is not None


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    for line in source.lines():
        text = line.text.strip()
        if match := _LINE.match(text):
            with draft.item(line.at, match["name"]):
                summary = {} if match["range"] is None else {"range": parse_number(match["range"], "range")}
                value = parse_number(match["value"], "bench")
                metrics = [metric("time" if "/iter" in match["unit"] else "value", match["unit"], value=value,
                                  statistic="median", summary=summary)]  # fmt: skip
                if rate := _RATE.search(text):
                    metrics.append(
                        metric(
                            "throughput", rate["unit"], value=parse_number(rate["value"]), statistic="median"
                        )
                    )
                draft.add(match["name"], metrics)
        elif match := _FAILED.match(text):
            with draft.item(line.at, match["name"]):
                draft.add(match["name"], status="error", reason="FAILED")
    return draft.finish()


FORMAT = Format(NAME, "cargo bench (libtest) text", _sniff, _read)
