"""The change-point detector of perfdb under the interface of a side-by-side evaluator of detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfdb.stats.changes import Change, ChangeKind, find_changes
from perfdb.stats.policy import Metric, Policy

ANY_NUMBER = Metric(name="value", unit="")
NO_FLOOR = Policy(relative_floor=0.0)  # an evaluator scores what is there, not what a policy cares for
LASTING = (ChangeKind.STEP, ChangeKind.RAMP)


def change_indices(y: NDArray[np.float64], meta: Mapping[str, Any] | None = None) -> list[int]:
    """First commits of new levels. y: one value per commit. Reads only meta's `raw` (commits, launches, samples)."""
    raw = None if meta is None else meta.get("raw")
    history = np.asarray(y, dtype=np.float64)
    if raw is not None and _are_summarised_by(raw, history):
        history = np.asarray(raw, dtype=np.float64)
    changes = find_changes(history, policy=NO_FLOOR, metric=ANY_NUMBER)
    return lasting_indices(changes)


def lasting_indices(changes: Sequence[Change]) -> list[int]:
    """Where a level is left or reached: the index of a step, both ends of a ramp."""
    found = [change.index for change in changes if change.kind in LASTING]
    return sorted(found + [c.end for c in changes if c.kind is ChangeKind.RAMP and c.end is not None])


def _are_summarised_by(raw: NDArray[Any], y: NDArray[np.float64]) -> bool:
    """Whether y is the median of launch medians; an evaluator that alters y alone means the altered y."""
    if len(raw) != len(y):
        return False
    return bool(np.allclose(np.median(np.median(raw, axis=2), axis=1), y, rtol=1e-5, atol=0.0))


change_indices.wants_meta = True  # type: ignore[attr-defined]
