"""The one table of unit names: which family a unit belongs to, its factor to the base unit, its direction.

Stdlib only and pure, so that the readers of foreign formats, the statistics and the pages agree on what 990 us
against 1.01 ms means. Two units may be compared only inside one family. A name that is not known is a family of
its own with no direction: it is compared with itself alone and never called better or worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

_TIME = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "usec", "usecs", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("ps", "picosecond", "picoseconds"), 1e-12),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_LONG = {"kilo": 1e3, "mega": 1e6, "giga": 1e9, "tera": 1e12}
_LONG_BINARY = {"kibi": 2.0**10, "mebi": 2.0**20, "gibi": 2.0**30, "tebi": 2.0**40}

_BYTES = {
    **{prefix + "B": factor for prefix, factor in (_DECIMAL | _BINARY).items()},
    **{p + w: f for p, f in ({"": 1.0} | _LONG | _LONG_BINARY).items() for w in ("byte", "bytes")},
    # Bits share the family: 8 Mbit/s and 1 MB/s are the same speed.
    **{p + w: f / 8.0 for p, f in (_DECIMAL | _BINARY).items() for w in ("b", "bit", "bits") if p + w != "b"},
}

_FLOP = {p + w: f for p, f in _DECIMAL.items() for w in ("FLOP", "Flop", "flop", "FLOPs", "flops")}

# What is done once per call of a benchmark: time per one of these is plain time.
_CALLS = {"op", "ops", "operation", "operations", "iter", "iters", "iteration", "iterations", "call", "calls"}
_CALLS |= {"invocation", "invocations"}

# Things counted, by their singular; "iterations/s" and "ops/s" are the same family.
_COUNTED = {
    **dict.fromkeys(_CALLS, "op"),
    **dict.fromkeys(("token", "tokens", "tok", "toks"), "token"),
    **dict.fromkeys(("request", "requests", "req", "reqs"), "request"),
    **dict.fromkeys(("query", "queries"), "query"),
    **dict.fromkeys(("sample", "samples"), "sample"),
    **dict.fromkeys(("item", "items"), "item"),
    **dict.fromkeys(("elem", "elems", "element", "elements"), "element"),
    **dict.fromkeys(("event", "events"), "event"),
    **dict.fromkeys(("message", "messages", "msg", "msgs"), "message"),
    **dict.fromkeys(("transaction", "transactions", "txn", "txns"), "transaction"),
    **dict.fromkeys(("frame", "frames"), "frame"),
    **dict.fromkeys(("image", "images", "img", "imgs"), "image"),
    **dict.fromkeys(("step", "steps"), "step"),
    **dict.fromkeys(("batch", "batches"), "batch"),
    **dict.fromkeys(("packet", "packets"), "packet"),
    **dict.fromkeys(("row", "rows"), "row"),
    **dict.fromkeys(("example", "examples"), "example"),
    **dict.fromkeys(("run", "runs"), "run"),
}

_SUFFIXED_RATES = {
    "rps": "request",
    "qps": "query",
    "tps": None,  # tokens or transactions: known to be a rate of neither
    "fps": "frame",
}

# Costs: fewer are better whatever is counted by them.
_COSTS = {
    **dict.fromkeys(("cycle", "cycles"), "cycle"),
    **dict.fromkeys(("instruction", "instructions", "instr", "instrs"), "instruction"),
    **dict.fromkeys(("alloc", "allocs", "allocation", "allocations"), "allocation"),
    **dict.fromkeys(("error", "errors"), "error"),
    **dict.fromkeys(("failure", "failures"), "failure"),
    **dict.fromkeys(("register", "registers", "regs"), "register"),
}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as the table knows it.

    family: units of one family may be compared. factor: multiply a value by it to get the base unit.
    base: the base unit's name. lower_is_better: None where the unit alone does not say.
    known: False for a name that the table lacks (its family is the name itself, its factor 1).
    """

    name: str
    family: str
    factor: float
    base: str
    lower_is_better: bool | None
    known: bool = True


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value in its family's base unit."""

    value: float
    unit: str
    family: str


class UnitError(ValueError):
    """Two units of different families were to be compared or converted."""


@lru_cache(maxsize=4096)
def lookup(name: str) -> Unit:
    """The unit called `name`. Never raises: an unknown name is a family of its own without direction."""
    text = name.strip().replace(" per ", "/")
    found = _single(text) or _per(text)
    if found is None:
        return Unit(name, f"unknown:{text}", 1.0, name, None, known=False)
    family, factor, base, lower = found
    return Unit(name, family, factor, base, lower)


def direction(unit: str) -> bool | None:
    """True where lower is better by the unit alone, False where higher is, None where it does not say."""
    return lookup(unit).lower_is_better


def normalise(value: float, unit: str) -> Quantity:
    """`value` in the base unit of its family (seconds, bytes, bytes/s, ops/s ...)."""
    known = lookup(unit)
    return Quantity(value * known.factor, known.base, known.family)


def convert(value: float, unit: str, into: str) -> float:
    """`value` given in `unit`, expressed in the unit `into`. Raises UnitError across families."""
    old, new = lookup(unit), lookup(into)
    if old.family != new.family:
        raise UnitError(f"{unit!r} ({old.family}) cannot be expressed in {into!r} ({new.family})")
    if old.factor == new.factor:
        return value
    # Most ratios are whole: use the whole number, so that 1000 us is exactly 1 ms.
    ratio, inverse = old.factor / new.factor, new.factor / old.factor
    if inverse > 1:
        return value / (round(inverse) if math.isclose(inverse, round(inverse), rel_tol=1e-12) else inverse)
    return value * (float(round(ratio)) if math.isclose(ratio, round(ratio), rel_tol=1e-12) else ratio)


_Found = tuple[str, float, str, bool | None]


def _single(text: str) -> _Found | None:
    """A unit without a slash."""
    lowered = text.lower()
    if text in _TIME or (lowered in _TIME and len(text) > 2):
        return "time", _TIME.get(text) or _TIME[lowered], "s", True
    if text in _BYTES or (lowered in _BYTES and len(text) > 3):
        # Used memory or free memory: the unit does not say.
        return "bytes", _BYTES.get(text) or _BYTES[lowered], "B", None
    if text in ("bytes_per_second", "bytes_per_sec"):
        return _per("B/s")
    if text.endswith(("FLOPS", "FLOPs", "Flops")) and text[:-5] in _DECIMAL:
        # GFLOPS is a speed by custom, GFLOP a count.
        return "flop/s", _DECIMAL[text[:-5]], "FLOP/s", False
    if text in _FLOP:
        return "flop", _FLOP[text], "FLOP", None
    if lowered in _SUFFIXED_RATES:
        counted = _SUFFIXED_RATES[lowered] or lowered
        return f"{counted}/s", 1.0, f"{_plural(counted)}/s" if counted != lowered else lowered, False
    if lowered in _COSTS:
        return _COSTS[lowered], 1.0, f"{_COSTS[lowered]}s", True
    if lowered in _COUNTED:
        counted = _COUNTED[lowered]
        return counted, 1.0, _plural(counted), None
    return _plain(text, lowered)


def _plain(text: str, lowered: str) -> _Found | None:
    """Ratios, counts, energy, power, temperature and frequency."""
    if text in ("%", "percent", "pct"):
        return "ratio", 0.01, "ratio", None
    if lowered in ("ratio", "fraction"):
        return "ratio", 1.0, "ratio", None
    if lowered in ("count", "counts"):
        return "count", 1.0, "count", None
    if text in ("J", "mJ", "kJ", "joule", "joules"):
        return "energy", {"mJ": 1e-3, "kJ": 1e3}.get(text, 1.0), "J", True
    if text in ("W", "mW", "kW", "watt", "watts"):
        return "power", {"mW": 1e-3, "kW": 1e3}.get(text, 1.0), "W", None
    if text in ("°C", "C", "celsius"):
        return "temperature", 1.0, "°C", None
    if text.endswith("Hz") and text[:-2] in _DECIMAL:
        return "frequency", _DECIMAL[text[:-2]], "Hz", None
    return None


def _per(text: str) -> _Found | None:
    """A unit with one or more slashes, read from the left: "ns/op", "MB/s", "tokens/sec/user"."""
    numerator, slash, denominator = text.partition("/")
    if not slash:
        return None
    if "/" in denominator:
        return _per_each(text)
    return _rate(numerator, denominator) or _cost_per(numerator, denominator)


def _per_each(text: str) -> _Found | None:
    """A rate shared out: tokens/s/user, tokens/s/gpu."""
    whole, _, each = text.rpartition("/")
    found = _per(whole)
    if found is None or each.lower() not in ("user", "gpu", "request", "device", "node"):
        return None
    family, factor, base, lower = found
    return f"{family}/{each.lower()}", factor, f"{base}/{each.lower()}", lower


def _rate(numerator: str, denominator: str) -> _Found | None:
    """Work done in a time: higher is better."""
    seconds = _TIME.get(denominator) or _TIME.get(denominator.lower())
    if seconds is None:
        return None
    if numerator in _FLOP:
        return "flop/s", _FLOP[numerator] / seconds, "FLOP/s", False
    if numerator in _BYTES or (numerator.lower() in _BYTES and len(numerator) > 3):
        factor = _BYTES.get(numerator) or _BYTES[numerator.lower()]
        return "bytes/s", factor / seconds, "B/s", False
    for prefix in ("", "k", "K", "M", "G"):
        counted = (
            _COUNTED.get(numerator.removeprefix(prefix).lower()) if numerator.startswith(prefix) else None
        )
        if counted:
            return f"{counted}/s", _DECIMAL[prefix] / seconds, f"{_plural(counted)}/s", False
    if numerator.lower() in _COSTS:
        cost = _COSTS[numerator.lower()]
        # Errors per second are bad; cycles or allocations per second say nothing of the work done.
        return f"{cost}/s", 1.0 / seconds, f"{cost}s/s", True if cost in ("error", "failure") else None
    return None


def _plural(noun: str) -> str:
    return {"query": "queries", "batch": "batches"}.get(noun, f"{noun}s")


def _cost_per(numerator: str, denominator: str) -> _Found | None:
    """Time, memory or another cost spent on one thing: lower is better."""
    counted = _COUNTED.get(denominator.lower())
    if counted is None:
        return None
    found = _single(numerator)
    if found is None:
        return None
    family, factor, base, _ = found
    if family not in ("time", "bytes", "flop", "energy") and numerator.lower() not in _COSTS:
        return None
    if family == "time" and counted == "op":
        return "time", factor, "s", True
    return f"{family}/{counted}", factor, f"{base}/{counted}", True
