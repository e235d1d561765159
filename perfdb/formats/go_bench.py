"""Go benchmark text (`go test -bench`), also inside `go test -json`.

A line is `BenchmarkName-8 <iterations> <value> <unit> ...`. Identity is (package, name). The GOMAXPROCS suffix is
a final `-<int>` and nothing else. Repeated lines (`-count`) are samples. Configuration lines (`key: value`) hold
until changed. Format: https://go.dev/design/14313-benchmark-format
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import FormatError, ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Params, Reading
from perfdb.formats.source import Line, Record, Source
from perfdb.formats.values import parse_number

NAME = "go-bench"
_LINE = re.compile(r"^(Benchmark\S*)\s+(\d+)\s+(\S.*)$")
_CONFIG = re.compile(r"^([a-z][^\sA-Z:]*):(?:\s+(.*))?$")
_PROCS = re.compile(r"^(.+)-(\d{1,9})$")
_FAIL = re.compile(r"^--- (FAIL|SKIP): (Benchmark\S*)")
_CLASS = ("goos", "goarch", "cpu")
_NAMES = {"ns/op": "time", "MB/s": "throughput", "B/op": "memory", "allocs/op": "allocations"}


def _sniff(source: Source) -> bool:
    if source.is_json:
        return source.is_json_lines and {"Action", "Package"} <= source.first_object.keys()
    return any(_LINE.match(line) and "/op" in line for line in source.head.splitlines()) or (
        re.search(r"(?m)^goos: \S+\r?\ngoarch: ", source.head) is not None
    )


def _read(source: Source) -> Reading:
    draft = Draft(NAME)
    config: dict[str, str] = {}
    for line in _text_lines(source):
        text = line.text.rstrip()
        if match := _LINE.match(text):
            with draft.item(line.at, match[1]):
                _benchmark(draft, match, config)
        elif match := _FAIL.match(text.lstrip()):
            with draft.item(line.at, match[2]):
                name, params = _without_procs(match[2])
                draft.add(
                    _qualified(name, config.get("pkg")),
                    params=params,
                    status="error" if match[1] == "FAIL" else "skipped",
                    reason=text.strip(),
                    repeat="samples",
                )
        elif match := _CONFIG.match(text):
            config[match[1]] = (match[2] or "").strip()
        elif text.startswith("Benchmark") and len(text.split()) > 1 and not text.startswith("Benchmarking"):
            draft.reject(line.at, "not `BenchmarkName <iterations> <value> <unit> ...`", text.split()[0])
        elif text.startswith("panic: "):
            draft.warn(f"{line.at}: {text[:200]}")
    draft.klass |= {key: config[key] for key in _CLASS if config.get(key)}
    draft.info |= {key: value for key, value in config.items() if key not in (*_CLASS, "pkg")}
    return draft.finish()


def _text_lines(source: Source) -> Iterator[Line]:
    """The lines of the text; of `go test -json` the Output of its events, put together again."""
    if not source.is_json:
        yield from source.lines()
        return
    rest: dict[str, str] = {}
    for number, record in enumerate(source.records(), start=1):
        if isinstance(record, FormatError):
            raise record
        event = record.value if isinstance(record, Record) and isinstance(record.value, dict) else {}
        package, output = event.get("Package"), event.get("Output")
        if not isinstance(package, str) or not isinstance(output, str):
            continue
        *whole, rest[package] = (rest.get(package, "") + output).split("\n")
        for text in whole:
            # Packages run at once: say before each line which one it belongs to.
            yield Line(number, f"pkg: {package}")
            yield Line(number, text)


def _benchmark(draft: Draft, match: re.Match[str], config: dict[str, str]) -> None:
    name, params = _without_procs(match[1])
    fields = match[3].split()
    if len(fields) % 2:
        raise ItemError("values and units do not pair up")
    metrics: list[MetricReading] = []
    for value, unit in zip(fields[::2], fields[1::2], strict=True):
        with draft.item(name):
            metrics.append(
                metric(
                    _NAMES.get(unit, unit),
                    unit,
                    launches=[[parse_number(value, unit)]],
                    zero_allowed=unit != "ns/op",
                )
            )
    draft.add(_qualified(name, config.get("pkg")), metrics, params=params, repeat="samples")


def _without_procs(name: str) -> tuple[str, Params]:
    """The name without GOMAXPROCS, which is a parameter: `-cpu 1,2,4` gives one name three of them.

    On one core Go writes no suffix; then the "10" of "size-10" is taken for it, and still stays apart from "size-20".
    """
    match = _PROCS.match(name)
    return (match[1], {"procs": int(match[2])}) if match else (name, {})


def _qualified(name: str, package: str | None) -> str:
    """Package and name; a package already written into the name is not put there twice."""
    return name if not package or package in name else f"{package}.{name}"


FORMAT = Format(NAME, "Go benchmark text", _sniff, _read, ("Benchmark", "ns/op"))
