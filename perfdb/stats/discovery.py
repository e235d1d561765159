"""False discoveries over many tests of one round: thousands of series make some small p-value certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Discoveries:
    """accepted: which tests stay discoveries, in the order given. q_values: the smallest rate at which each would
    stay (adjusted p-value), None where there was no p-value. tests: how many p-values were counted."""

    accepted: tuple[bool, ...]
    q_values: tuple[float | None, ...]
    rate: float
    tests: int


def control_false_discoveries(
    p_values: Sequence[float | None], *, rate: float = 0.05, tests: int | None = None, dependent: bool = False
) -> Discoveries:
    """Keep the expected share of false ones among the accepted at or below `rate`.

    Benjamini & Hochberg 1995, valid for independent and positively dependent tests (metrics of one launch move
    together); `dependent=True` uses Benjamini & Yekutieli 2001, valid for any dependence and stricter by about
    log(tests). tests: number of tests made in the round where only some p-values are handed in (a detector reports
    its changes, not the quiet series); default the number of p-values. An entry None (no p-value, for example an
    exact change of a deterministic counter) is always accepted and not counted.

    Raises ValueError for a rate or p-value outside [0, 1] (with its position) and for `tests` below the count.
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate lies between 0 and 1, got {rate!r}")
    for number, p in enumerate(p_values, 1):
        if p is not None and not (math.isfinite(p) and 0.0 <= p <= 1.0):
            raise ValueError(f"p-value {number} is {p!r}, not in [0, 1]")
    places = [i for i, p in enumerate(p_values) if p is not None]
    count = len(places) if tests is None else tests
    if count < len(places):
        raise ValueError(f"{len(places)} p-values are more than the {count} tests of the round")
    ordered = np.array([p for p in p_values if p is not None], dtype=np.float64)
    order = np.argsort(ordered, kind="stable")
    factor = count * (float(np.sum(1.0 / np.arange(1, count + 1))) if dependent and count else 1.0)
    raw = ordered[order] * factor / np.arange(1, len(ordered) + 1)
    adjusted = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    q_values: list[float | None] = [None] * len(p_values)
    for position, q in zip(order, adjusted, strict=True):
        q_values[places[position]] = float(q)
    accepted = tuple(q is None or q <= rate for q in q_values)
    return Discoveries(accepted, tuple(q_values), rate, count)
