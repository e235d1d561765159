"""Runs on their way in: each metric's samples as an array, checked one by one before anything is written."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field

import numpy as np

from perfdb.models import Case
from perfdb.services.batch import MetricRow, RunRow, as_array
from perfdb.stats.ranks import Floats
from perfdb.units import lookup

_SIGNED_FAMILIES = {"temperature"}


@dataclass(slots=True)
class Measured:
    """One metric of one run on its way in; samples already in the metric's stored unit."""

    row: MetricRow
    samples: Floats
    mhz: Floats | None
    value: float | None


@dataclass(slots=True)
class Item:
    """One run on its way in."""

    path: str
    row: RunRow
    launch: int
    uuid: uuid.UUID
    params_hash: str
    measured: list[Measured] = field(default_factory=list)
    found_case: Case | None = None
    id: int = 0

    @property
    def case(self) -> Case:
        if self.found_case is None:
            raise AssertionError("cases are resolved before they are used")
        return self.found_case


def read_metric(row: MetricRow) -> Measured:
    """Raises ValueError naming metric and position of a sample that cannot be."""
    samples = as_array(row.samples)
    unit = lookup(row.unit)
    signed = unit.family in _SIGNED_FAMILIES or not unit.known
    _check_values(row, "samples", samples, signed=signed)
    if row.value is not None:
        _check_values(row, "value", np.array([row.value]), signed=signed)
    mhz = None if row.mhz is None else as_array(row.mhz)
    if mhz is not None and len(mhz) != len(samples):
        raise ValueError(f"metric {row.name!r}: {len(mhz)} clock readings for {len(samples)} samples")
    if mhz is not None:
        _check_values(row, "mhz", mhz, signed=False)
    return Measured(row, samples, mhz, row.value)


def _check_values(row: MetricRow, name: str, values: Floats, *, signed: bool) -> None:
    if not len(values):
        return
    least = values.min()
    if math.isfinite(least) and math.isfinite(values.max()) and (signed or least >= 0.0):
        return
    bad = ~np.isfinite(values) if signed else ~(np.isfinite(values) & (values >= 0))
    at = int(np.argmax(bad))
    place = name if name == "value" else f"{name}[{at}]"
    problem = "is negative" if math.isfinite(values[at]) else "is not a finite number"
    unit = "MHz" if name == "mhz" else row.unit
    raise ValueError(f"metric {row.name!r}: {place} {problem} ({values[at]:g} {unit})")


def check_metric_names(run: RunRow) -> None:
    names = [metric.name for metric in run.metrics]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"metric {name!r} stands twice")


def clock(mhz: Floats | None) -> float | None:
    return float(np.median(mhz)) if mhz is not None and len(mhz) else None
