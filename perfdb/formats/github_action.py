"""github-action-benchmark: the custom array its tools write, and its history `data.js`.

The custom files look alike whichever way is better: the direction is set in the tool, not in the file, so it
stays open until declared. In `data.js` each entry names its tool, which says the direction.
`data.js` holds many commits: `perfdb.formats.history` yields them all, a single reading is the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.jsontext import parse_json
from perfdb.formats.reading import CommitReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite, is_number, parse_number

CUSTOM_NAME = "github-action-benchmark"
DATA_JS_NAME = "github-action-benchmark-data-js"
_ASSIGNMENT = re.compile(r"^\s*window\.BENCHMARK_DATA\s*=\s*")
_LOWER_BY_TOOL: dict[str, bool | None] = {
    "customSmallerIsBetter": True,
    "customBiggerIsBetter": False,
    "cargo": True,
    "go": None,  # the unit decides: it holds MB/s beside ns/op
    "googlecpp": True,
    "catch2": True,
    "julia": True,
    "benchmarkdotnet": True,
    "pytest": False,  # written as iterations a second
    "benchmarkjs": False,
    "benchmarkluau": True,
    "jmh": None,
}


class _Bench(msgspec.Struct):
    name: str
    value: Any
    unit: str = ""
    range: Any = None
    extra: Any = None


class _Commit(msgspec.Struct):
    id: str
    message: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class Entry:
    """One commit's results in a history. `suite` is the chart's name, `at` the position in the file."""

    suite: str
    at: str
    raw: dict[str, Any]


def _is_bench(value: Any) -> bool:
    return isinstance(value, dict) and {"name", "unit", "value"} <= value.keys()


def _sniff_custom(source: Source) -> bool:
    return not source.is_json_lines and any(_is_bench(each) for each in source.first_array[:20])


def _sniff_data_js(source: Source) -> bool:
    if _ASSIGNMENT.match(source.head):
        return True
    document = source.first_object
    return {"lastUpdate", "entries"} <= document.keys()


def _read_custom(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, list):
        raise source.error("$", "expected an array of {name, unit, value}")
    draft = Draft(CUSTOM_NAME)
    _benches(draft, document, lower_is_better=None)
    if draft.has_any:
        draft.warn(
            "direction: it is a setting of the tool and not in the file; declare it, or nothing is judged"
        )
    return draft.finish()


def _benches(
    draft: Draft, benches: list[Any], *, lower_is_better: bool | None, by_unit: bool = False
) -> None:
    for index, raw in enumerate(benches):
        with draft.item(f"[{index}]"):
            bench = convert(raw, _Bench, f"[{index}]")
            value = (
                parse_number(bench.value, "value")
                if isinstance(bench.value, str)
                else finite(bench.value, "value")
            )
            summary: dict[str, Any] = {}
            if (spread := _range(bench.range)) is not None:
                summary["range"] = spread
            made = metric(
                "value",
                bench.unit,
                lower_is_better="unit" if by_unit else lower_is_better,
                value=value,
                statistic="mean",
                summary=summary,
            )
            extra = bench.extra if isinstance(bench.extra, str) else None
            draft.add(bench.name, [made], info={"extra": extra})


def _range(value: Any) -> Number | None:
    """A spread: 3, "3", "+/- 35", "± 0.5", "+/- 2,802"; None for what is no number ("stddev: ...")."""
    if isinstance(value, str):
        try:
            return parse_number(re.sub(r"^\s*(±|\+/-|\+-)\s*", "", value).removesuffix("%"))
        except ItemError:
            return None
    return value if is_number(value) else None


# -- data.js -------------------------------------------------------------------------------------------------


def entries(source: Source) -> Iterator[Entry]:
    """Every commit of a history, suite after suite, in the file's order. Raises FormatError for another content."""
    text = source.text
    match = _ASSIGNMENT.match(text)
    body = text[match.end() :].rstrip().rstrip(";") if match else text
    # Blank lines in the assignment's place keep the positions of errors right.
    document = parse_json((" " * (match.end() if match else 0)) + body, format=DATA_JS_NAME)
    suites = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(suites, dict):
        raise source.error("entries", "expected an object of suites")
    for suite, commits in suites.items():
        if not isinstance(commits, list):
            raise source.error(f"entries[{suite!r}]", "expected an array of commits")
        for index, raw in enumerate(commits):
            at = f"entries[{suite!r}][{index}]"
            yield Entry(suite, at, raw if isinstance(raw, dict) else {})


def entry_reading(entry: Entry) -> Reading:
    """One commit of a history. The suite is part of the name: two suites may hold the same benchmark."""
    draft = Draft(DATA_JS_NAME)
    benches = entry.raw.get("benches")
    with draft.item(entry.at):
        commit = convert(entry.raw.get("commit"), _Commit, f"{entry.at}.commit")
        draft.commit = CommitReading(commit.id, time=commit.timestamp, message=commit.message)
    with draft.item(entry.at):
        if not isinstance(benches, list):
            raise ItemError("no benches")
        tool = entry.raw.get("tool")
        tool = tool if isinstance(tool, str) else ""
        lower = _LOWER_BY_TOOL.get(tool)
        by_unit = tool in _LOWER_BY_TOOL and lower is None
        named = [
            each | {"name": f"{entry.suite}/{each['name']}"}
            if isinstance(each, dict) and "name" in each
            else each
            for each in benches
        ]
        _benches(draft, named, lower_is_better=lower, by_unit=by_unit)
        draft.info["tool"] = tool
        if tool not in _LOWER_BY_TOOL:
            draft.warn(f"direction: tool {tool!r} is not known; declare it, or nothing is judged")
    date = entry.raw.get("date")
    if is_number(date) and 0 <= date < 2**42:
        draft.started_at = datetime.fromtimestamp(date / 1000, UTC).isoformat()
    return draft.finish()


def _read_data_js(source: Source) -> Reading:
    """The newest commit of each suite must be one and the same; older ones are for the history import."""
    newest: dict[str, Entry] = {entry.suite: entry for entry in entries(source)}
    if not newest:
        raise source.error("entries", "no commit in this history")
    if len(newest) > 1:
        raise source.error("entries", f"{len(newest)} suites with their histories: import it with --history")
    return entry_reading(next(iter(newest.values())))


CUSTOM_FORMAT = Format(CUSTOM_NAME, "github-action-benchmark custom JSON", _sniff_custom, _read_custom)
DATA_JS_FORMAT = Format(
    DATA_JS_NAME, "github-action-benchmark data.js", _sniff_data_js, _read_data_js, ("window.BENCHMARK_DATA",)
)
