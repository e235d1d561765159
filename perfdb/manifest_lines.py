"""Where a key stands in TOML text. `tomllib` keeps no positions, and an error must name its line."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


def locate(text: str, path: tuple[str | int, ...]) -> int | None:
    """The 1-based line of the deepest part of `path` that the text shows, None if not even its first part.

    Tables (`[a.b]`), arrays of tables (`[[a]]`, counted) and dotted keys are followed; inside an inline table
    or a multi-line value the line where the value starts is given.
    """
    wanted = tuple(path)
    best: tuple[int, int] | None = None
    for line, found in _keys(text):
        depth = _common(found, wanted)
        if depth == len(found) and (best is None or depth > best[0]):
            best = (depth, line)
    return best[1] if best else None


def _common(found: tuple[str | int, ...], wanted: tuple[str | int, ...]) -> int:
    depth = 0
    for a, b in zip(found, wanted, strict=False):
        if a != b:
            break
        depth += 1
    return depth


def _keys(text: str) -> list[tuple[int, tuple[str | int, ...]]]:
    out: list[tuple[int, tuple[str | int, ...]]] = []
    counts: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    open_brackets, fence = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if fence:
            if fence in line:
                fence = ""
            continue
        header = _HEADER.match(line) if open_brackets == 0 else None
        if header:
            table = _enter(tuple(_parts(header[2])), counts, array=header[1] == "[[")
            out.append((number, table))
            continue
        key = _KEY.match(line) if open_brackets == 0 else None
        if key:
            out.append((number, (*table, *_parts(key[1]))))
        for mark in ('"""', "'''"):
            if line.count(mark) == 1:
                fence = mark
        bare = _STRING.sub("", line).split("#")[0]
        open_brackets += sum(bare.count(c) for c in "[{") - sum(bare.count(c) for c in "]}")
    return out


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]


def _enter(
    names: tuple[str, ...], counts: dict[tuple[str | int, ...], int], *, array: bool
) -> tuple[str | int, ...]:
    """The full path of a table header: every array of tables on the way gets the index of its latest item."""
    path: tuple[str | int, ...] = ()
    for i, name in enumerate(names):
        path = (*path, name)
        if array and i == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
