"""Readers of trace files, one function a format. Sources of the formats are named at each reader.

All give arrivals relative to the first one and in order of arrival: a public trace is a log, and logs are
written in order of completion as often as of arrival.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from .trace import Trace, TraceError, TraceRequest

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16
MAX_TOKENS = 10_000_000

Row = Mapping[str, Any]


def read(path: Path, *, name: str | None = None) -> Trace:
    """The trace in `path`, in whichever of FORMATS the columns of the first row tell; `name` is what messages
    call the file.

    Raises TraceError naming file, line and column.
    """
    name = name or path.name
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TraceError(f"{name}:{line}: no UTF-8 text") from None
    rows = _jsonl(name, text) if text.lstrip().startswith("{") else _csv(name, text)
    try:
        number, first = next(rows)
    except StopIteration:
        raise TraceError(f"{name}: no request in it") from None
    format = _recognise(name, first)
    reader, block_tokens, _ = FORMATS[format]
    requests = [_request(name, number, first, reader)]
    requests += [_request(name, number, row, reader) for number, row in rows]
    requests.sort(key=lambda request: request.at_s)  # stable: equal times keep the file's order
    start_s = requests[0].at_s
    return Trace(
        requests=tuple(
            TraceRequest(r.at_s - start_s, r.input_tokens, r.output_tokens, r.klass, r.blocks)
            for r in requests
        ),
        format=format,
        source_sha256=hashlib.sha256(raw).hexdigest(),
        block_tokens=block_tokens,
    )


def _request(name: str, number: int, row: Row, reader: Callable[[Row], TraceRequest]) -> TraceRequest:
    try:
        return reader(row)
    except TraceError as error:
        raise TraceError(f"{name}:{number}: {error}") from None


def _csv(name: str, text: str) -> Iterator[tuple[int, Row]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(rows, None)
        if header is None:
            return
        for values in rows:
            if not values:
                continue
            if len(values) != len(header):
                raise TraceError(
                    f"{name}:{rows.line_num}: {len(values)} fields under a header of {len(header)}"
                )
            yield rows.line_num, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise TraceError(f"{name}:{rows.line_num}: {error}") from None


def _jsonl(name: str, text: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TraceError(f"{name}:{number}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise TraceError(f"{name}:{number}: expected an object")
        yield number, row


def _recognise(name: str, first: Row) -> str:
    for format, (_, _, columns) in FORMATS.items():
        if columns <= first.keys():
            return format
    known = "; ".join(f"{format}: {', '.join(sorted(need))}" for format, (_, _, need) in FORMATS.items())
    raise TraceError(f"{name}: columns {', '.join(first)} belong to no known format ({known})")


def _field(row: Row, key: str) -> Any:
    if key not in row:
        raise TraceError(f"{key} is missing")
    return row[key]


def _number(row: Row, key: str) -> float:
    value = _field(row, key)
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not math.isfinite(number):
        raise TraceError(f"{key}: expected a finite number, got {value!r}")
    return number


def _tokens(row: Row, key: str) -> int:
    number = _number(row, key)
    if number != int(number) or not 0 <= number <= MAX_TOKENS:
        raise TraceError(f"{key}: expected a whole number from 0 to {MAX_TOKENS}, got {row[key]!r}")
    return int(number)


def _blocks(row: Row, key: str) -> tuple[int, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or any(isinstance(b, bool) or not isinstance(b, int) for b in value):
        raise TraceError(f"{key}: expected a list of integers")
    return tuple(value)


def _plain(row: Row) -> TraceRequest:
    """Our own: `at_s`, `input_tokens`, `output_tokens`, and `class` where there are classes."""
    klass = row.get("class", "")
    if not isinstance(klass, str):
        raise TraceError(f"class: expected a text, got {klass!r}")
    return TraceRequest(
        _number(row, "at_s"), _tokens(row, "input_tokens"), _tokens(row, "output_tokens"), klass
    )


def _azure(row: Row) -> TraceRequest:
    """Azure LLM inference traces 2023 and 2024 (Azure/AzurePublicDataset); seven digits of a second."""
    stamp = _field(row, "TIMESTAMP")
    try:
        at = datetime.fromisoformat(stamp)
        epoch = datetime(1970, 1, 1, tzinfo=at.tzinfo)
        whole = (at.replace(microsecond=0) - epoch).total_seconds()
        fraction = "".join(c for c in stamp.partition(".")[2].partition("+")[0] if c.isdigit())
        at_s = whole + (float(f"0.{fraction}") if fraction else 0.0)
    except (TypeError, ValueError):
        raise TraceError(f"TIMESTAMP: expected a date and time, got {stamp!r}") from None
    return TraceRequest(at_s, _tokens(row, "ContextTokens"), _tokens(row, "GeneratedTokens"))


def _burstgpt(row: Row) -> TraceRequest:
    """BurstGPT (HPMLL/BurstGPT): seconds; a request that failed there has 0 response tokens."""
    return TraceRequest(
        _number(row, "Timestamp"),
        _tokens(row, "Request tokens"),
        _tokens(row, "Response tokens"),
        str(row.get("Model", "")),
    )


def _mooncake(row: Row) -> TraceRequest:
    """Mooncake (kvcache-ai/Mooncake): milliseconds, often on a coarse grid; blocks of 512 tokens."""
    return TraceRequest(
        _number(row, "timestamp") / 1e3,
        _tokens(row, "input_length"),
        _tokens(row, "output_length"),
        blocks=_blocks(row, "hash_ids"),
    )


def _bailian(row: Row) -> TraceRequest:
    """Qwen-Bailian (alibaba-edu/qwen-bailian-usagetraces-anon): seconds; blocks of 16 tokens."""
    return TraceRequest(
        _number(row, "timestamp"),
        _tokens(row, "input_length"),
        _tokens(row, "output_length"),
        str(row.get("type", "")),
        _blocks(row, "hash_ids"),
    )


# Reader, tokens a block, and the columns that tell the format; the more specific format stands first.
FORMATS: dict[str, tuple[Callable[[Row], TraceRequest], int | None, frozenset[str]]] = {
    "plain": (_plain, None, frozenset({"at_s", "input_tokens", "output_tokens"})),
    "azure": (_azure, None, frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})),
    "burstgpt": (_burstgpt, None, frozenset({"Timestamp", "Request tokens", "Response tokens"})),
    "bailian": (
        _bailian,
        BAILIAN_BLOCK_TOKENS,
        frozenset({"chat_id", "timestamp", "input_length", "output_length"}),
    ),
    "mooncake": (_mooncake, MOONCAKE_BLOCK_TOKENS, frozenset({"timestamp", "input_length", "output_length"})),
}
