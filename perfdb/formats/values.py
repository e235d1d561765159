"""Single values of a file, checked: types, finite numbers, numbers written as text, names fit to keep."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, TypeGuard, TypeVar

import msgspec

from perfdb.formats.errors import ItemError
from perfdb.formats.reading import Number

_MAX_NUMBER_CHARS = 400
_T = TypeVar("_T")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def convert(value: Any, into: type[_T], at: str = "") -> _T:
    """`value` as a msgspec Struct. Raises ItemError naming the path of what does not fit."""
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        where = (at + path.strip("`").removeprefix("$")).removeprefix(".")
        raise ItemError(_lower_first(reason), where) from None


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def is_number(value: Any) -> TypeGuard[Number]:
    """Whether `value` is a number that a double holds: not true, "3", NaN, an infinity or an endless integer."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def finite(value: Any, at: str = "") -> Number:
    """`value` if `is_number`. Raises ItemError for anything else."""
    if is_number(value):
        return value
    kind = "a number" if isinstance(value, bool) or not isinstance(value, (int, float)) else "a finite number"
    raise ItemError(f"expected {kind}, got {shown(value)}", at)


def median(values: Sequence[Number]) -> Number:
    """The middle value, or the mean of the two in the middle without leaving the range of a double."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if low == high:
        return low
    return (low + high) / 2 if math.isfinite(float(low) + float(high)) else low / 2 + high / 2


def parse_number(text: str, at: str = "") -> Number:
    """A number written as text; thousands separators are taken out. Raises ItemError."""
    cleaned = text.strip()
    if len(cleaned) > _MAX_NUMBER_CHARS:
        raise ItemError(f"expected a number, got {shown(text)}", at)
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", cleaned):
        cleaned = cleaned.replace(",", "")
    if re.fullmatch(r"[+-]?\d{1,300}", cleaned):
        return finite(int(cleaned), at)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", cleaned):
        raise ItemError(f"expected a number, got {shown(text)}", at)
    return finite(float(cleaned), at)


def shown(value: Any) -> str:
    """A value as an error message shows it: short, and for containers only their kind."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, (str, float)) else "a very large integer"
    if isinstance(value, int) and abs(value) < 10**30:
        text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def clean(text: str) -> str:
    """Text that a database and a terminal take: control characters and lone surrogates are replaced."""
    return _CONTROL.sub("�", text)


def stable(text: str) -> str:
    """A name without memory addresses, which change from run to run."""
    return _ADDRESS.sub("", clean(text))
