"""Mutate result files and feed them to every reader: a Reading or a FormatError, never another exception.

    python benchmarks/fuzz_formats.py --seconds 120            # each reader for two minutes
    python benchmarks/fuzz_formats.py --seconds 10 --only jmh

Seeds are tests/formats/inputs and whatever --seeds names. A failing input is shrunk and saved into
tests/formats/corpus, which the tests replay. Exit code 1 when anything failed.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfdb.formats import FORMATS, FormatError, Reading, read

ROOT = Path(__file__).resolve().parents[1]
SEEDS = ROOT / "tests" / "formats" / "inputs"
CORPUS = ROOT / "tests" / "formats" / "corpus"
_SLOW_S = 5.0
_MAX_SEED_BYTES = 40_000

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, -0.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 2**63, 10**400, "", " ",
    "12", "NaN", "1e999", "-5", "\x00", "\ud800", "x" * 3000, [], {}, [[]], [None], {"": ""}, {"value": None},
    [1, "a", None], "�", "a b", "0x7f00deadbeef", [[[1]]], {"name": 1}, "Infinity", "1,234.5",
)  # fmt: skip
_TOKENS = (
    b"0", b"-1", b"1e400", b"NaN", b"Infinity", b"null", b"{", b"}", b"[", b"]", b"\"", b",", b":", b"\xff",
    b"\xef\xbb\xbf", b"us",
    b"\r\n", b"\n", b"\x00", b"9" * 5000, b"[" * 2000, b'{"a":' * 200, b"\xed\xa0\x80", b"%", b" ", b"\t", b"/", b"-",
    b"ns/op", b"<!DOCTYPE x [<!ENTITY a 'b'>]>", b"&a;", b"1" * 40,
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """An input and what it did instead of a Reading or a FormatError."""

    format: str
    data: bytes
    reason: str


def problem(data: bytes, format: str) -> str | None:
    """What is wrong with how `data` is read, None when all is well."""
    started = time.monotonic()
    try:
        reading = read(data, format, max_bytes=2**20)
    except FormatError as error:
        if not error.reason or not str(error):
            return "a FormatError without a reason"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"
    else:
        wrong = _unsound(reading)
        if wrong:
            return wrong
    took = time.monotonic() - started
    return f"took {took:.1f} s for {len(data)} bytes" if took > _SLOW_S else None


def _unsound(reading: Reading) -> str | None:
    try:
        text = json.dumps(reading.to_json(), allow_nan=False)
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        return f"a reading that is no JSON: {error}"
    for benchmark in reading.benchmarks:
        if not benchmark.identity or not benchmark.name.strip():
            return "a benchmark without identity"
        for metric in benchmark.metrics:
            numbers = [*metric.launch_values, *(sample for launch in metric.launches for sample in launch)]
            if any(isinstance(number, bool) or not math.isfinite(number) for number in numbers):
                return f"a number that is none in {metric.name}"
            metric.per_launch()
    return None


# -- mutation ------------------------------------------------------------------------------------------------


def mutate(rng: random.Random, seed: bytes, others: list[bytes]) -> bytes:
    """One mutant: of the JSON structure where there is one, of the bytes else; sometimes packed."""
    data = seed
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _mutate_json(rng, data) if rng.random() < 0.6 else _mutate_bytes(rng, data, others)
    if rng.random() < 0.03:
        data = gzip.compress(data)
        if rng.random() < 0.7:
            data = _mutate_bytes(rng, data, others)
    return data


def _mutate_bytes(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    if not data:
        return rng.choice(_TOKENS)
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 2, 8, 64, 512)))
    kind = rng.randrange(6)
    if kind == 0:
        return data[:start]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:start] + rng.choice(_TOKENS) + data[start:]
    if kind == 3:
        return data[:start] + data[start:end] * rng.choice((2, 3, 20)) + data[end:]
    if kind == 4:
        other = rng.choice(others) or b"x"
        cut = rng.randrange(len(other))
        return data[:start] + other[cut : cut + rng.choice((8, 64, 2000))] + data[end:]
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _mutate_json(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    for candidate, put in ((data, None), (lines[place].removeprefix(b":::MLLOG "), place)):
        try:
            document = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if not isinstance(document, (dict, list)):
            continue
        changed = json.dumps(_changed(rng, document)).encode()
        if put is None:
            return changed
        prefix = b":::MLLOG " if lines[put].startswith(b":::MLLOG ") else b""
        return b"\n".join([*lines[:put], prefix + changed, *lines[put + 1 :]])
    return _mutate_bytes(rng, data, [data])


def _changed(rng: random.Random, document: Any) -> Any:
    document = copy.deepcopy(document)
    spots: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        node = stack.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            spots.append((node, key))
            if isinstance(node[key], (dict, list)):
                stack.append(node[key])
    if not spots:
        return rng.choice(_ODD)
    node, key = rng.choice(spots)
    action = rng.randrange(5)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    elif action == 2 and isinstance(node, dict):
        node[rng.choice(("name", "", "x" * 100, "value", str(key).upper()))] = node.pop(key)
    elif action == 3:
        other, place = rng.choice(spots)
        try:
            node[key] = copy.deepcopy(other[place])
        except (KeyError, IndexError):
            node[key] = None
    else:
        node[key] = rng.choice(_ODD)
    return document


def shrink(data: bytes, still_fails: Callable[[bytes], bool], *, seconds: float = 10.0) -> bytes:
    """A smaller input that fails too: chunks are cut out while it does."""
    end = time.monotonic() + seconds
    size = max(1, len(data) // 2)
    while size and time.monotonic() < end:
        start = 0
        while start < len(data) and time.monotonic() < end:
            shorter = data[:start] + data[start + size :]
            if still_fails(shorter):
                data = shorter
            else:
                start += size
        size //= 2
    return data


# -- the run -------------------------------------------------------------------------------------------------


def fuzz(name: str, seeds: list[bytes], *, seconds: float, rng: random.Random) -> tuple[int, list[Failure]]:
    """Feed reader `name` mutants for `seconds`; returns how many and the failures, one of each kind."""
    own = [seed for seed in seeds if _reads(seed, name)] or seeds
    failures: dict[str, Failure] = {}
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutate(rng, rng.choice(own if rng.random() < 0.95 else seeds), seeds)
        format = name if rng.random() < 0.8 else "auto"
        count += 1
        reason = problem(data, format)
        kind = (reason or "").split(":")[0] + (reason or "")[:40]
        if reason and kind not in failures:
            small = shrink(data, lambda candidate, format=format: problem(candidate, format) is not None)  # type: ignore[misc]
            failures[kind] = Failure(format, small, problem(small, format) or reason)
    return count, list(failures.values())


def _reads(seed: bytes, name: str) -> bool:
    try:
        return read(seed, "auto").format == name
    except FormatError as error:
        return error.format == name


def save(failure: Failure) -> Path:
    """Into the corpus, under the format's name so that the replay knows how to read it."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    path = CORPUS / f"{failure.format}-{hashlib.sha256(failure.data).hexdigest()[:12]}.bin"
    path.write_bytes(failure.data)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="for each reader")
    parser.add_argument("--only", choices=tuple(FORMATS), action="append")
    parser.add_argument("--seeds", type=Path, action="append", default=[], help="another folder of seeds")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator")
    args = parser.parse_args()
    files = [
        path
        for folder in (SEEDS, CORPUS, *args.seeds)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    seeds = [data for path in files if 0 < len(data := path.read_bytes()) <= _MAX_SEED_BYTES]
    failed = 0
    for name in args.only or FORMATS:
        count, failures = fuzz(name, seeds, seconds=args.seconds, rng=random.Random(f"{args.seed} {name}"))
        print(f"{name:32} {count:8} inputs, {len(failures)} failures", flush=True)
        for failure in failures:
            print(f"    {save(failure).name}: {failure.reason}", flush=True)
        failed += len(failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
