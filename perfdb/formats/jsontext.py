"""JSON as result files really hold it: NaN and Infinity accepted here and judged by the reader, and everything
that would lose data or break the reader (duplicate keys, deep nesting, endless digits) refused with its position.
"""

from __future__ import annotations

import json
import re
from typing import Any

from perfdb.formats.errors import FormatError

MAX_DEPTH = 64
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _DuplicateKeyError(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def parse_json(text: str, *, format: str) -> Any:
    """The value of `text`. Raises FormatError with line and column."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise FormatError(format, f"line {error.lineno} column {error.colno}", _reason(error)) from None
    except _DuplicateKeyError as error:
        raise FormatError(format, _locate(text, error.key), f"key {error.key[:80]!r} given twice") from None
    except RecursionError:
        raise FormatError(format, _depth_position(text), f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise FormatError(format, _digits_position(text), "a number with too many digits") from None
    if _too_deep(value):
        raise FormatError(format, _depth_position(text), f"nested deeper than {MAX_DEPTH} levels")
    return _without_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def _without_surrogates(value: Any) -> Any:
    """Half a surrogate pair is no character: nothing can encode it."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_SURROGATE.sub("\ufffd", key): _without_surrogates(each) for key, each in value.items()}
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            # The same scalar twice loses nothing; two different values do.
            if key in seen and (isinstance(value, (dict, list)) or seen[key] != value):
                raise _DuplicateKeyError(key)
            seen[key] = value
    return made


def _reason(error: json.JSONDecodeError) -> str:
    reason = error.msg[:1].lower() + error.msg[1:]
    if error.pos >= len(error.doc.rstrip()):
        return f"ends too early ({reason})"
    return f"not JSON: {reason}"


def _too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _position(text: str, offset: int) -> str:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return f"line {line} column {column}"


def _depth_position(text: str) -> str:
    """Where the nesting goes too deep: up to there the text is sound, so one pass finds it."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{}\]]', text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > MAX_DEPTH:
            return _position(text, match.start())
    return _position(text, 0)


def _digits_position(text: str) -> str:
    match = re.search(r"(?<!\d)\d{4000,}", text)
    return _position(text, match.start() if match else 0)


def _locate(text: str, key: str) -> str:
    """Where `key` stands for the second time in one object."""
    scopes: list[set[str]] = []
    for match in re.finditer(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}]', text, re.DOTALL):
        string, is_key = match.groups()
        if match.group() == "{":
            scopes.append(set())
        elif match.group() == "}" and scopes:
            scopes.pop()
        elif is_key and scopes and json.loads(string, strict=False) == key:
            if key in scopes[-1]:
                return _position(text, match.start())
            scopes[-1].add(key)
    return _position(text, 0)
