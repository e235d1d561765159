"""airspeed velocity: one result file `<machine>/<commit>-<environment>.json`, versions 1 and 2.

null is a failed benchmark and a bare NaN a skipped one; neither is 0. Units, parameter names and current versions
live beside it in `benchmarks.json`, which is looked up when the result is read from a path. A result's version
belongs to its identity: another version is another series.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.jsontext import parse_json
from perfdb.formats.reading import CommitReading, Params, Reading
from perfdb.formats.source import Source, open_source
from perfdb.formats.values import finite, is_number, shown

NAME = "asv"
_SPECIAL = ("date", "params", "results", "commit_hash")
_MAX_CASES = 100_000
# By the name's prefix, where benchmarks.json is not at hand.
_KINDS = {
    "time": ("time", "s", True),
    "timeraw": ("time", "s", True),
    "mem": ("memory", "bytes", True),
    "peakmem": ("peak_memory", "bytes", True),
    "track": ("value", "unit", None),
}
_UNITS = {"seconds": "s"}


@dataclass(frozen=True)
class _Result:
    """One benchmark's row, whichever way the file writes it."""

    values: list[Any]
    axes: list[list[Any]]
    version: str | None
    samples: list[Any] | None = None
    quartiles: list[tuple[Any, Any]] | None = None


def _is_metadata(document: dict[str, Any]) -> bool:
    if "results" in document or "commit_hash" in document:
        return False
    entries = [value for value in document.values() if isinstance(value, dict)]
    if entries and all(
        {"name", "code", "type"} & entry.keys() == {"name", "code", "type"} for entry in entries
    ):
        return True
    return {"arch", "cpu", "machine", "os"} <= document.keys()


def _sniff(source: Source) -> bool:
    document = source.first_object
    if _is_metadata(document):
        return True
    return isinstance(document.get("results"), dict) and bool(
        {"commit_hash", "env_name", "requirements"} & document.keys()
    )


def _read(source: Source) -> Reading:
    document = source.document
    if not isinstance(document, dict):
        raise source.error("$", f"expected an object, got {shown(document)}")
    if _is_metadata(document):
        raise source.error(
            "$", "asv metadata (machine.json or benchmarks.json), not a result: never read as one"
        )
    results = document.get("results")
    if not isinstance(results, dict):
        raise source.error("results", "missing: valid JSON, but not an asv result file")
    version = document.get("version", 1)
    if version not in (1, 2) or isinstance(version, bool):
        raise source.error("version", f"asv results of version {shown(version)}; known are 1 and 2")
    draft = Draft(NAME)
    _header(draft, document)
    known = _benchmarks_beside(source, draft)
    for name, raw in results.items():
        with draft.item(f"results[{name!r}]", name):
            _benchmark(draft, name, _result(raw, name, document), known.get(name, {}))
    return draft.finish()


def _header(draft: Draft, document: dict[str, Any]) -> None:
    params = document.get("params")
    params = params if isinstance(params, dict) else {}
    requirements = document.get("requirements")
    for key, value in params.items():
        if isinstance(value, (str, int, float)) or value is None:
            draft.klass[key] = "" if value is None else value
    if isinstance(requirements, dict):
        draft.klass["requirements"] = {
            key: "" if value is None else value for key, value in requirements.items()
        }
    if isinstance(document.get("python"), str):
        draft.klass["python"] = document["python"]
    if isinstance(document.get("env_vars"), dict) and document["env_vars"]:
        draft.klass["env_vars"] = document["env_vars"]
    draft.info["env_name"] = document.get("env_name")
    date = document.get("date")
    time = None
    if is_number(date) and 0 <= date < 2**42:
        time = datetime.fromtimestamp(date / 1000, UTC).isoformat()
    commit = document.get("commit_hash")
    if isinstance(commit, str) and commit:
        draft.commit = CommitReading(commit, time=time)
    else:
        draft.warn("no commit_hash: the result belongs to no commit")


def _benchmarks_beside(source: Source, draft: Draft) -> dict[str, dict[str, Any]]:
    """The descriptions in `benchmarks.json`, by name; empty where there is none to be found or it is broken."""
    if source.path is None:
        return {}
    for folder in (source.path.parent, source.path.parent.parent):
        path = folder / "benchmarks.json"
        if path.is_file():
            try:
                document = parse_json(open_source(path, max_bytes=source.max_bytes).text, format=NAME)
            except FormatError as error:
                draft.warn(f"benchmarks.json is not used: {error.at}: {error.reason}")
                return {}
            if isinstance(document, dict):
                return {name: entry for name, entry in document.items() if isinstance(entry, dict)}
    return {}


def _result(raw: Any, name: str, document: dict[str, Any]) -> _Result:
    if isinstance(raw, list):
        return _columns(raw, document)
    versions = document.get("benchmark_version")
    version = versions.get(name) if isinstance(versions, dict) else None
    version = str(version) if isinstance(version, (str, int)) else None
    if not isinstance(raw, dict):
        return _Result([raw], [], version)
    values = raw.get("result")
    return _Result(
        values if isinstance(values, list) else [values],
        _axes(raw.get("params")),
        version,
        _per_case(raw.get("samples")),
        _quartiles_v1(raw.get("stats")),
    )


def _columns(raw: list[Any], document: dict[str, Any]) -> _Result:
    """Version 2: a row of columns named by `result_columns`; columns at the end may be missing."""
    columns = document.get("result_columns")
    if not isinstance(columns, list) or not all(isinstance(each, str) for each in columns):
        raise ItemError("a row of columns, but the file has no result_columns")
    row = dict(zip(columns, raw, strict=False))
    values = row.get("result")
    low, high = row.get("stats_q_25"), row.get("stats_q_75")
    quartiles = (
        list(zip(low, high, strict=False)) if isinstance(low, list) and isinstance(high, list) else None
    )
    version = row.get("version")
    return _Result(
        values if isinstance(values, list) else [values],
        _axes(row.get("params")),
        str(version) if isinstance(version, (str, int)) else None,
        row["samples"] if isinstance(row.get("samples"), list) else None,
        quartiles,
    )


def _axes(params: Any) -> list[list[Any]]:
    if not params:
        return []
    if not isinstance(params, list) or not all(isinstance(axis, list) for axis in params):
        raise ItemError("params is not a list of lists")
    if math.prod(len(axis) for axis in params) > _MAX_CASES:
        raise ItemError(f"more than {_MAX_CASES} parameter combinations")
    return params


def _per_case(samples: Any) -> list[Any] | None:
    """Version 1 writes one flat list for a benchmark without parameters, else a list for each combination."""
    if not isinstance(samples, list) or not samples:
        return None
    return samples if any(isinstance(each, list) or each is None for each in samples) else [samples]


def _quartiles_v1(stats: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(stats, dict):
        stats = [stats]
    if not isinstance(stats, list):
        return None
    return [
        (each.get("q_25"), each.get("q_75")) if isinstance(each, dict) else (None, None) for each in stats
    ]


def _cases(result: _Result, names: list[str]) -> Iterator[Params]:
    for combination in itertools.product(*result.axes):
        yield {
            names[place] if place < len(names) else f"param{place + 1}": value
            if isinstance(value, str)
            else str(value)
            for place, value in enumerate(combination)
        }


def _benchmark(draft: Draft, name: str, result: _Result, known: dict[str, Any]) -> None:
    names = known.get("param_names")
    names = [each for each in names if isinstance(each, str)] if isinstance(names, list) else []
    cases = list(_cases(result, names))
    values = result.values
    if values == [None] and len(cases) > 1:
        values = [None] * len(cases)  # the whole benchmark failed
    if len(values) != len(cases):
        raise ItemError(f"{len(values)} results for {len(cases)} combinations of parameters")
    current = known.get("version")
    if result.version is not None and current is not None and str(current) != result.version:
        draft.warn(
            f"{name}: measured at version {result.version[:12]}, now at {str(current)[:12]}: another series"
        )
    for index, (params, value) in enumerate(zip(cases, values, strict=True)):
        with draft.item(f"results[{name!r}][{index}]", name):
            _case(
                draft,
                name,
                params,
                value,
                _at(result.samples, index),
                _at(result.quartiles, index),
                result,
                known,
            )


def _at(values: list[Any] | None, index: int) -> Any:
    return values[index] if values is not None and index < len(values) else None


def _case(
    draft: Draft, name: str, params: Params, value: Any, samples: Any, quartiles: Any, result: _Result,
    known: dict[str, Any],
) -> None:  # fmt: skip
    if value is None:
        draft.add(name, params=params, version=result.version, status="error", reason="failed (null)")
        return
    if isinstance(value, float) and math.isnan(value):
        draft.add(name, params=params, version=result.version, status="skipped", reason="skipped (NaN)")
        return
    kind, unit, lower = _kind(name, known)
    raw = samples if isinstance(samples, list) else []
    good = [each for each in raw if each is not None and not (isinstance(each, float) and math.isnan(each))]
    low, high = quartiles or (None, None)
    summary = {key: each for key, each in (("q_25", low), ("q_75", high)) if is_number(each)}
    made = metric(
        kind,
        unit,
        lower_is_better=lower,
        launches=[good],
        value=finite(value),
        statistic="median",
        summary=summary,
    )
    draft.add(name, [made], params=params, version=result.version)


def _kind(name: str, known: dict[str, Any]) -> tuple[str, str, bool | None]:
    """Metric name, unit and direction: by benchmarks.json, else by the name's prefix."""
    function = name.rsplit(".", 1)[-1]
    prefix = function.split("_", 1)[0].lower()
    metric_name, unit, lower = _KINDS.get(
        prefix, _KINDS["time"] if function.startswith("Time") else _KINDS["track"]
    )
    kind = known.get("type")
    if kind in ("time", "memory", "peakmemory", "track"):
        by_type = {"time": "time", "memory": "mem", "peakmemory": "peakmem", "track": "track"}[kind]
        metric_name, unit, lower = _KINDS[by_type]
    given = known.get("unit")
    if isinstance(given, str) and given:
        unit = _UNITS.get(given, given)
    return metric_name, unit, lower


FORMAT = Format(NAME, "airspeed velocity results", _sniff, _read, ('"commit_hash"', '"results"'))
