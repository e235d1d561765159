"""Numbers for people, on pages and in mails. The value is never changed, only the unit it is shown in."""

from __future__ import annotations

import math

from perfdb.units import lookup

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def quantity(value: float | None, unit: str) -> str:
    """`0.00099 s` as `990 us`, `5400 objects` as it is. None ranks as +infinity: `failed`."""
    if value is None:
        return "failed"
    known = lookup(unit)
    if known.family == "time":
        return _scaled(value * known.factor, _TIME)
    if known.family == "bytes":
        return _scaled(value * known.factor, _BYTES)
    if known.family == "ratio":
        return f"{_digits(100 * value * known.factor)} %"
    for factor, prefix in _LARGE:
        if abs(value) >= factor and "/" in unit:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{_digits(value)} {unit}".strip()


def readable(level: float | None, unit: str) -> tuple[float, str]:
    """(factor, unit) in which values of about `level` read well on an axis: `41e-6, s` gives `(1e6, us)`."""
    known = lookup(unit)
    if known.family == "ratio":
        return 100 * known.factor, "%"
    steps = {"time": _TIME, "bytes": _BYTES}.get(str(known.family))
    if not steps or not level:
        return 1.0, unit
    size = abs(level) * known.factor
    factor, name = next((step for step in steps if size >= step[0]), steps[-1])
    return known.factor / factor, name


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    for factor, name in steps:
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {name}"
    factor, name = steps[-1] if value else steps[0]
    return f"{_digits(value / factor)} {name}"


def _digits(value: float) -> str:
    """Four significant digits, whole numbers whole."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    decimals = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{min(decimals, 6)}f}" if abs(value) < 1e6 else f"{value:.4g}"


def percent(ratio: float | None) -> str:
    """A ratio as a change: 1.312 is `+31.2 %`; nothing where there is no ratio."""
    if ratio is None:
        return ""
    change = 100 * (ratio - 1)
    if abs(change) >= 1000:
        return f"x{ratio:.3g}"
    return f"{change:+.2f} %" if abs(change) < 10 else f"{change:+.1f} %"


def interval(low: float | None, high: float | None) -> str:
    return f"{percent(low)} to {percent(high)}" if low is not None and high is not None else ""
