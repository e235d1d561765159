"""What a declared metric asks for: its unit says the kind of quantity, its name which one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from .loading import CaseError
from .result import Measurement, MetricSpec


class Kind(Enum):
    """Kinds of quantity, each with its base unit."""

    TIME = "s"
    MEMORY = "B"
    BANDWIDTH = "B/s"
    RATE = "FLOP/s"
    SHARE = "ratio"


_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS: dict[str, tuple[Kind, float]] = {
    "s": (Kind.TIME, 1.0),
    "ms": (Kind.TIME, 1e-3),
    "us": (Kind.TIME, 1e-6),
    "µs": (Kind.TIME, 1e-6),
    "ns": (Kind.TIME, 1e-9),
    "KiB": (Kind.MEMORY, 2.0**10),
    "MiB": (Kind.MEMORY, 2.0**20),
    "GiB": (Kind.MEMORY, 2.0**30),
    "bytes": (Kind.MEMORY, 1.0),
    "ratio": (Kind.SHARE, 1.0),
    "%": (Kind.SHARE, 0.01),
    **{f"{prefix}B": (Kind.MEMORY, scale) for prefix, scale in _PREFIXES.items()},
    **{f"{prefix}B/s": (Kind.BANDWIDTH, scale) for prefix, scale in _PREFIXES.items()},
    **{f"{prefix}FLOP/s": (Kind.RATE, scale) for prefix, scale in _PREFIXES.items()},
    **{f"{prefix}FLOPS": (Kind.RATE, scale) for prefix, scale in _PREFIXES.items() if prefix},
}


def kind_of(metric: MetricSpec, *, tier: str) -> Kind:
    """Raises CaseError where the unit names nothing that an in-process tier measures."""
    if metric.unit not in _UNITS:
        raise CaseError(
            f"metric {metric.name!r}: the {tier} tier measures nothing in {metric.unit!r} "
            f"(known units: {', '.join(sorted(_UNITS))})"
        )
    return _UNITS[metric.unit][0]


def measured(
    metric: MetricSpec, base_values: Sequence[float], *, mhz: Sequence[float] | None = None
) -> Measurement:
    """Samples given in the base unit of the metric's kind, converted to the metric's unit."""
    scale = _UNITS[metric.unit][1]
    return Measurement(metric, [value / scale for value in base_values], None if mhz is None else list(mhz))


def select(
    metrics: Sequence[MetricSpec], *, headline: str, named: Mapping[str, Kind], tier: str
) -> dict[str, str]:
    """Which quantity each declared metric takes: metric name -> quantity name.

    A metric whose name is in `named` and whose unit is of that kind takes it; any other metric in a unit of
    time takes the `headline`, and any other in a unit of memory, bandwidth, rate or share takes the one
    quantity of that kind. Raises CaseError where there is none.
    """
    chosen = {}
    for metric in metrics:
        kind = kind_of(metric, tier=tier)
        if named.get(metric.name) is kind:
            chosen[metric.name] = metric.name
            continue
        if kind is Kind.TIME:
            chosen[metric.name] = headline
            continue
        candidates = [name for name, of_kind in named.items() if of_kind is kind]
        if not candidates:
            raise CaseError(f"metric {metric.name!r}: the {tier} tier measures nothing in {metric.unit!r}")
        chosen[metric.name] = candidates[0]
    return chosen
