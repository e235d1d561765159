"""Catch2: `--reporter xml`. Values are nanoseconds. Only summaries: the reporter writes no samples.

The name is test case, sections and benchmark. Entities and document types are refused: a benchmark report has
none, and they are how a small XML file becomes an endless one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import Reading
from perfdb.formats.source import Source
from perfdb.formats.values import parse_number

NAME = "catch2"
_MAX_DEPTH = 100


@dataclass
class _Open:
    """A BenchmarkResults element while it is open."""

    name: str
    line: int
    values: dict[str, dict[str, str]] = field(default_factory=dict)


def _sniff(source: Source) -> bool:
    head = source.head.lstrip()
    return head.startswith("<") and (
        "<Catch2TestRun" in head or "<Catch " in head or "<BenchmarkResults" in head
    )


class _Handler:
    """Builds the draft while expat runs over the file."""

    def __init__(self, draft: Draft, parser: expat.XMLParserType) -> None:
        self._draft = draft
        self._parser = parser
        self._path: list[str] = []
        self._depth = 0
        self._open: _Open | None = None
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse

    def _refuse(self, *_: Any) -> None:
        raise FormatError(
            NAME, f"line {self._parser.CurrentLineNumber}", "a document type or entity is refused"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        line = self._parser.CurrentLineNumber
        if self._depth > _MAX_DEPTH:
            raise FormatError(NAME, f"line {line}", f"nested deeper than {_MAX_DEPTH} levels")
        if self._depth == 1 and tag not in ("Catch2TestRun", "Catch", "BenchmarkResults"):
            raise FormatError(NAME, f"line {line}", f"<{tag[:40]}> is no Catch2 report")
        if self._depth == 1:
            self._draft.info["tool_version"] = attributes.get("catch2-version")
        if tag in ("TestCase", "Section"):
            self._path.append(attributes.get("name", "").strip())
        elif tag == "BenchmarkResults":
            self._open = _Open(attributes.get("name", "").strip(), line)
            self._open.values["setup"] = attributes
        elif self._open is not None:
            self._open.values[tag] = attributes

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag in ("TestCase", "Section") and self._path:
            self._path.pop()
        elif tag == "BenchmarkResults" and self._open is not None:
            with self._draft.item(f"line {self._open.line}", self._open.name):
                _benchmark(self._draft, [*self._path, self._open.name], self._open.values)
            self._open = None


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    parser = expat.ParserCreate()
    _Handler(draft, parser)
    try:
        for chunk in source.chunks():
            parser.Parse(chunk)
        parser.Parse(b"", True)  # noqa: FBT003 - expat takes no keyword
    except FormatError:
        raise
    except (LookupError, ValueError) as error:
        raise FormatError(NAME, "line 1", f"unknown encoding: {error}") from None
    except expat.ExpatError as error:
        at = f"line {error.lineno} column {error.offset + 1}"
        raise FormatError(NAME, at, f"not XML: {expat.ErrorString(error.code)}") from None
    return draft.finish()


def _benchmark(draft: Draft, path: list[str], values: dict[str, dict[str, str]]) -> None:
    # A benchmark in a test case of its own name is written once.
    parts = [part for place, part in enumerate(path) if part and part not in path[:place]]
    name = " / ".join(parts)
    if "failed" in values:
        reason = values["failed"].get("message", "failed")
        draft.add(name, status="error", reason=reason)
        return
    if "value" not in values.get("mean", {}):
        raise ItemError("no mean")
    summary: dict[str, Any] = {}
    for key, element, attribute in (
        ("low_mean", "mean", "lowerBound"),
        ("high_mean", "mean", "upperBound"),
        ("stddev", "standardDeviation", "value"),
        ("samples", "setup", "samples"),
        ("iterations", "setup", "iterations"),
    ):
        if attribute in values.get(element, {}):
            summary[key] = parse_number(values[element][attribute], key)
    value = parse_number(values["mean"]["value"], "mean")
    draft.add(name, [metric("time", "ns", value=value, statistic="mean", summary=summary)])


FORMAT = Format(NAME, "Catch2 XML", _sniff, _read, ("<BenchmarkResults",))
