"""Codespeed exports: the list that `/result/add/json/` takes, and Django's `dumpdata` of its tables.

Both hold many commits: `groups` yields one reading for each commit, executable and environment. The list has no
unit and no direction (they are settings of the server), the dump has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import CommitReading, Number, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import convert, finite, shown

NAME = "codespeed"
_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_SPREAD = {"std_dev": "std", "min": "min", "max": "max", "val_min": "min", "val_max": "max"}


class _Row(msgspec.Struct):
    commitid: str | int
    executable: str
    benchmark: str
    environment: str
    result_value: Any
    branch: str | None = None
    project: str | None = None
    revision_date: str | None = None
    result_date: str | None = None
    std_dev: Number | None = None
    min: Number | None = None
    max: Number | None = None


@dataclass(frozen=True)
class _Result:
    """One result, whichever export it comes from."""

    at: str
    row: _Row
    unit: str = ""
    lower_is_better: bool | None = None


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and {"commitid", "benchmark", "result_value"} <= value.keys()


def _is_dump(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("model"), str)
        and value["model"].startswith("codespeed.")
    )


def _sniff(source: Source) -> bool:
    first = source.first_array[:1] or ([source.first_object] if source.first_object else [])
    return bool(first) and (_is_row(first[0]) or _is_dump(first[0]))


def groups(source: Source) -> Iterator[Reading]:
    """One reading for each commit, executable and environment, in the file's order. Raises FormatError."""
    document = source.document
    rows = [document] if isinstance(document, dict) else document
    broken = Draft(NAME)
    results = _dump(broken, rows) if any(_is_dump(each) for each in rows[:50]) else _list(broken, rows)
    grouped: dict[tuple[str, str, str], list[_Result]] = {}
    for result in results:
        key = (str(result.row.commitid), result.row.executable, result.row.environment)
        grouped.setdefault(key, []).append(result)
    if not grouped and not broken.rejected:
        raise source.error("$", "no result in this export")
    for place, members in enumerate(grouped.values()):
        draft = Draft(NAME, rejected=list(broken.rejected) if place == 0 else [])
        yield _reading(draft, members)
    if not grouped:
        yield broken.finish()


def _list(draft: Draft, rows: list[Any]) -> list[_Result]:
    results: list[_Result] = []
    for index, raw in enumerate(rows):
        with draft.item(f"[{index}]"):
            results.append(_Result(f"[{index}]", convert(raw, _Row, f"[{index}]")))
    return results


def _dump(draft: Draft, rows: list[Any]) -> list[_Result]:
    """Join the tables of a dump by their keys."""
    tables: dict[str, dict[Any, dict[str, Any]]] = {}
    for row in rows:
        if _is_dump(row) and isinstance(row.get("fields"), dict) and isinstance(row.get("pk"), (int, str)):
            tables.setdefault(row["model"].removeprefix("codespeed."), {})[row["pk"]] = row["fields"]
    results: list[_Result] = []
    for key, fields in tables.get("result", {}).items():
        with draft.item(f"codespeed.result {key}"):
            results.append(_joined(f"codespeed.result {key}", fields, tables))
    return results


def _joined(at: str, fields: dict[str, Any], tables: dict[str, dict[Any, dict[str, Any]]]) -> _Result:
    def other(table: str, key: Any) -> dict[str, Any]:
        found = tables.get(table, {}).get(key) if isinstance(key, (int, str)) else None
        if found is None:
            raise ItemError(f"no {table} {shown(key)} in the dump")
        return found

    revision, benchmark = (
        other("revision", fields.get("revision")),
        other("benchmark", fields.get("benchmark")),
    )
    branch_key = revision.get("branch")
    branch = (
        tables.get("branch", {}).get(branch_key, {}).get("name")
        if isinstance(branch_key, (int, str))
        else None
    )
    row = convert(
        {
            "commitid": revision.get("commitid"),
            "revision_date": revision.get("date"),
            "branch": branch if isinstance(branch, str) else None,
            "executable": other("executable", fields.get("executable")).get("name"),
            "environment": other("environment", fields.get("environment")).get("name"),
            "benchmark": benchmark.get("name"),
            "result_value": fields.get("value"),
            "result_date": fields.get("date"),
        },
        _Row,
        at,
    )
    unit, less = benchmark.get("units"), benchmark.get("lessisbetter")
    return _Result(
        at,
        row,
        _UNITS.get(unit, unit) if isinstance(unit, str) else "",
        less if isinstance(less, bool) else None,
    )


def _reading(draft: Draft, members: list[_Result]) -> Reading:
    first = members[0].row
    draft.commit = CommitReading(str(first.commitid), branch=first.branch, time=first.revision_date)
    draft.klass |= {"environment": first.environment, "executable": first.executable}
    draft.info["project"] = first.project
    draft.started_at = first.result_date
    for result in members:
        with draft.item(result.at, result.row.benchmark):
            summary = {
                label: value
                for key, label in _SPREAD.items()
                if isinstance(value := getattr(result.row, key, None), (int, float))
            }
            made = metric(
                "value",
                result.unit,
                lower_is_better=result.lower_is_better,
                value=finite(result.row.result_value, "result_value"),
                statistic="mean",
                summary=summary,
            )
            draft.add(result.row.benchmark, [made])
    if any(result.lower_is_better is None for result in members):
        draft.warn("direction: it is a setting of the server and not in this export; declare it")
    return draft.finish()


def _read(source: Source) -> Reading:
    readings = list(groups(source))
    if len(readings) > 1:
        raise FormatError(
            NAME, "$", f"{len(readings)} commits or environments in one file: import it with --history"
        )
    return readings[0]


FORMAT = Format(NAME, "Codespeed export", _sniff, _read)
