"""Units in families: values are normalised inside a family and never compared across families.

The direction is a property of the unit only where it is beyond doubt (a time per operation, a throughput). An unknown
unit has no family and no direction: nobody guesses that less is better.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    TIME = "time"
    BYTES = "bytes"
    RATE = "rate"
    BYTE_RATE = "byte rate"
    FLOP_RATE = "flop rate"
    COUNT = "count"
    FRACTION = "fraction"
    CYCLES = "cycles"
    FREQUENCY = "frequency"
    ENERGY = "energy"
    POWER = "power"
    TEMPERATURE = "temperature"


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: `value * scale` is the value in the family's base unit.

    item: what is counted, for counts, rates and times per item ("token", "request", "op"); two rates or counts of
    different items are different families. Times per item stay times: ns/op and s/op are one family.
    """

    text: str
    family: Family
    scale: float
    lower_is_better: bool | None
    item: str = ""

    def comparable(self, other: Unit) -> bool:
        if self.family is not other.family:
            return False
        if self.family in (Family.COUNT, Family.RATE):
            return self.item == other.item
        return not self.item or not other.item or self.item == other.item


_TIMES = {
    "ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "nanosecond": 1e-9, "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "sec": 1.0, "minute": 60.0,
    "hour": 3600.0, "nsec": 1e-9, "usec": 1e-6, "msec": 1e-3,
}  # fmt: skip
_BYTES = {"B": 1.0, "byte": 1.0, "b": 0.125, "bit": 0.125} | {
    prefix + suffix: factor
    for letter, power in zip("kMGTP", range(1, 6), strict=True)
    for prefix, factor in {
        letter: 1000.0**power,
        letter.upper() + "i": 1024.0**power,
        letter.upper(): 1000.0**power,
    }.items()
    for suffix in ("B",)
}
_FLOPS = {
    prefix + word: factor
    for prefix, factor in {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}.items()
    for word in ("FLOP", "FLOPs", "flop", "flops")
}
_LESS = (
    "op",
    "call",
    "alloc",
    "allocation",
    "instruction",
    "register",
    "spill",
    "error",
    "failure",
    "oom",
    "miss",
)
_NEUTRAL_ITEMS = ("", "object", "item", "row", "step", "launch", "sample", "kernel")
_RATE_ITEMS = ("op", "request", "req", "token", "tok", "query", "sample", "item", "step", "row", "call", "iteration",
               "image", "sequence", "frame")  # fmt: skip
_SAME_ITEM = {"req": "request", "tok": "token", "queries": "query", "calls": "call", "allocs": "alloc",
              "allocation": "alloc", "misses": "miss"}  # fmt: skip
_OTHERS = {
    "cycles": Unit("cycles", Family.CYCLES, 1.0, lower_is_better=True),
    "cycle": Unit("cycle", Family.CYCLES, 1.0, lower_is_better=True),
    "%": Unit("%", Family.FRACTION, 0.01, lower_is_better=None),
    "percent": Unit("percent", Family.FRACTION, 0.01, lower_is_better=None),
    "fraction": Unit("fraction", Family.FRACTION, 1.0, lower_is_better=None),
    "ratio": Unit("ratio", Family.FRACTION, 1.0, lower_is_better=None),
    "Hz": Unit("Hz", Family.FREQUENCY, 1.0, lower_is_better=None),
    "kHz": Unit("kHz", Family.FREQUENCY, 1e3, lower_is_better=None),
    "MHz": Unit("MHz", Family.FREQUENCY, 1e6, lower_is_better=None),
    "GHz": Unit("GHz", Family.FREQUENCY, 1e9, lower_is_better=None),
    "J": Unit("J", Family.ENERGY, 1.0, lower_is_better=True),
    "mJ": Unit("mJ", Family.ENERGY, 1e-3, lower_is_better=True),
    "kJ": Unit("kJ", Family.ENERGY, 1e3, lower_is_better=True),
    "W": Unit("W", Family.POWER, 1.0, lower_is_better=None),
    "mW": Unit("mW", Family.POWER, 1e-3, lower_is_better=None),
    "°C": Unit("°C", Family.TEMPERATURE, 1.0, lower_is_better=None),
    "C": Unit("C", Family.TEMPERATURE, 1.0, lower_is_better=None),
    "count": Unit("count", Family.COUNT, 1.0, lower_is_better=None),
    "qps": Unit("qps", Family.RATE, 1.0, lower_is_better=False, item="query"),
    "rps": Unit("rps", Family.RATE, 1.0, lower_is_better=False, item="request"),
}


def parse_unit(text: str) -> Unit | None:
    """The unit that a text names, None for an unknown one. Case matters where it has meaning (Mb, MB)."""
    word = text.strip()
    if word in _OTHERS:
        return _OTHERS[word]
    top, slash, bottom = word.partition("/")
    if not slash:
        return _plain(word)
    return _quotient(word, top.strip(), bottom.strip())


def direction(text: str) -> bool | None:
    """Whether lower is better by the unit alone; None where the unit does not tell."""
    unit = parse_unit(text)
    return unit.lower_is_better if unit else None


def family(text: str) -> Family | None:
    unit = parse_unit(text)
    return unit.family if unit else None


def conversion(source: str, target: str) -> float:
    """Factor f with `value in target = f * value in source`.

    Raises ValueError across families, and for unknown units unless both texts are equal.
    """
    if source.strip() == target.strip():
        return 1.0
    from_unit, to_unit = parse_unit(source), parse_unit(target)
    for text, unit in ((source, from_unit), (target, to_unit)):
        if unit is None:
            raise ValueError(f"unit {text!r} is unknown: {source!r} cannot be compared with {target!r}")
    assert from_unit is not None
    assert to_unit is not None
    if not from_unit.comparable(to_unit):
        raise ValueError(
            f"units {source!r} ({_named(from_unit)}) and {target!r} ({_named(to_unit)}) are of different families"
        )
    return from_unit.scale / to_unit.scale


def convert(value: float, source: str, target: str) -> float:
    """The value in another unit of the same family. Raises ValueError like `conversion`."""
    return value * conversion(source, target)


def _named(unit: Unit) -> str:
    return f"{unit.family} of {unit.item}" if unit.item else str(unit.family)


def _plain(word: str) -> Unit | None:
    if (scale := _lookup(_TIMES, word)) is not None:
        return Unit(word, Family.TIME, scale, lower_is_better=True)
    if (scale := _lookup(_BYTES, word)) is not None:
        return Unit(word, Family.BYTES, scale, lower_is_better=True)
    if word.endswith("FLOPS") and word[:-1] in _FLOPS:
        return Unit(
            word, Family.FLOP_RATE, _FLOPS[word[:-1]], lower_is_better=False
        )  # TFLOPs, written for both, stays unknown
    item = _item(word)
    if item in _LESS and item not in ("op", "call"):
        return Unit(word, Family.COUNT, 1.0, lower_is_better=True, item=item)
    if item in _NEUTRAL_ITEMS[1:] or item in _RATE_ITEMS:
        return Unit(word, Family.COUNT, 1.0, lower_is_better=None, item=item)
    return None


def _quotient(word: str, top: str, bottom: str) -> Unit | None:
    seconds = _lookup(_TIMES, bottom)
    if seconds is not None:
        if (scale := _lookup(_BYTES, top)) is not None:
            return Unit(word, Family.BYTE_RATE, scale / seconds, lower_is_better=False)
        if top in _FLOPS:
            return Unit(word, Family.FLOP_RATE, _FLOPS[top] / seconds, lower_is_better=False)
        item = _item(top)
        return (
            Unit(word, Family.RATE, 1.0 / seconds, lower_is_better=False, item=item)
            if item in _RATE_ITEMS
            else None
        )
    item = _item(bottom)
    if item not in _RATE_ITEMS and item != "iter":
        return None
    if (scale := _lookup(_TIMES, top)) is not None:
        return Unit(
            word,
            Family.TIME,
            scale,
            lower_is_better=True,
            item="op" if item in ("op", "iter", "iteration", "call") else item,
        )
    if (scale := _lookup(_BYTES, top)) is not None:
        return Unit(word, Family.BYTES, scale, lower_is_better=True, item=item)
    counted = _item(top)
    return Unit(word, Family.COUNT, 1.0, lower_is_better=True, item=counted) if counted in _LESS else None


def _lookup(table: dict[str, float], word: str) -> float | None:
    """Exact, or a written-out word in any case and number ("Seconds")."""
    if word in table:
        return table[word]
    lowered = re.sub(r"s$", "", word.lower())
    return table.get(lowered) if len(lowered) > 2 else None


def _item(word: str) -> str:
    """One word per counted thing: lower case, singular, without abbreviation."""
    lowered = word.lower()
    if lowered not in _SAME_ITEM and lowered.endswith("s") and not lowered.endswith("ss"):
        lowered = lowered[:-1]
    return _SAME_ITEM.get(lowered, lowered)
