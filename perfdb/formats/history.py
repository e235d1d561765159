"""Whole histories as many readings: asv result folders, github-action-benchmark `data.js`, pytest-benchmark
storage, criterion folders, LNT and Codespeed exports, or any folder of result files.

Every item has a key made of its content, so importing a history twice stores it once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from perfdb.formats import declared, detect, read
from perfdb.formats.codespeed import FORMAT as CODESPEED
from perfdb.formats.codespeed import groups
from perfdb.formats.errors import FormatError
from perfdb.formats.github_action import DATA_JS_FORMAT, entries, entry_reading
from perfdb.formats.reading import Reading
from perfdb.formats.source import MAX_BYTES, open_source

_NOT_RESULTS = ("machine.json", "benchmarks.json")  # of asv
_MAX_FILES = 200_000


@dataclass(frozen=True)
class HistoryItem:
    """One reading of a history, or the file that could not be read.

    origin: file, and the place in it where it holds several. key: digest of the reading's content without its
    warnings; equal keys are the same result. Exactly one of `reading` and `error` is set.
    """

    origin: str
    key: str
    reading: Reading | None = None
    error: FormatError | None = None


def history(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    lower_is_better: bool | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[HistoryItem]:
    """Every reading under `path`, a file or a folder, in a stable order; one that is there twice comes once.

    A file that cannot be read is an item with its error, and the rest follows. Raises FormatError when `path`
    does not exist or holds no file at all.
    """
    root = Path(path)
    if not root.exists():
        raise FormatError(format, str(root), "no such file or folder")
    files = _files(root) if root.is_dir() else [root]
    if not files:
        raise FormatError(format, str(root), "an empty folder: no result in it")
    seen: set[str] = set()
    for file in files:
        for item in _items(file, format, max_bytes):
            if item.reading is not None and item.key in seen:
                continue
            seen.add(item.key)
            if item.reading is not None and lower_is_better is not None:
                item = replace(item, reading=declared(item.reading, lower_is_better=lower_is_better))
            yield item


def _files(root: Path) -> list[Path]:
    """Files below `root` that can be results, sorted by path: never a hidden one, an asv description or a link."""
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        # `base` is criterion's copy of the run before; beside a `new` it is that run, imported in its own time.
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".git") and not (each == "base" and "new" in folders)
        )
        kept = [name for name in sorted(names) if name not in _NOT_RESULTS and not name.startswith(".")]
        found += [here / name for name in _one_of_each_trio(kept) if (here / name).is_file()]
        if len(found) > _MAX_FILES:
            raise FormatError("auto", str(root), f"more than {_MAX_FILES} files")
    return found


def _one_of_each_trio(names: list[str]) -> list[str]:
    """criterion's estimates, sample, benchmark (and tukey, no result) of one benchmark are one reading."""
    stems = {name.rpartition("estimates.json")[0] for name in names if name.endswith("estimates.json")}
    extra = {f"{stem}{kind}.json" for stem in stems for kind in ("sample", "benchmark", "tukey")}
    return [name for name in names if name not in extra]


def _items(file: Path, format: str, max_bytes: int) -> Iterator[HistoryItem]:
    try:
        source = open_source(file, max_bytes=max_bytes)
        name = detect(source).name if format == "auto" else format
        if name == DATA_JS_FORMAT.name:
            source.format = name
            for entry in entries(source):
                yield _item(f"{file}#{entry.at}", entry_reading(entry))
        elif name == CODESPEED.name:
            source.format = name
            for index, reading in enumerate(groups(source)):
                yield _item(f"{file}#{index}", reading)
        else:
            yield _item(str(file), read(file, name, max_bytes=max_bytes))
    except FormatError as error:
        yield HistoryItem(str(file), _digest(f"{file}\0{error}"), error=error)


def _item(origin: str, reading: Reading) -> HistoryItem:
    content = replace(reading, warnings=(), rejected=()).to_json()
    return HistoryItem(origin, _digest(json.dumps(content, sort_keys=True)), reading=reading)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
