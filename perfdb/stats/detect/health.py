"""What the health of the runs tells before any statistics: disturbed launches, and the drift of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfdb.stats.detect.history import Floats, History


@dataclass(frozen=True)
class Trusted:
    """A history without its fully suspect launches. weight: of each launch that is left, in (0, 1]."""

    history: History
    weight: Floats


def without_suspects(history: History, suspect: Sequence[Any] | NDArray[Any]) -> Trusted:
    """suspect: per commit as given a share in [0, 1] (True is 1), or a list of one share per non-empty launch.

    A commit whose launches are all suspect becomes a gap. Raises ValueError where the shape or a share is wrong.
    """
    if len(suspect) != history.length:
        raise ValueError(f"suspect: {len(suspect)} entries for {history.length} commits")
    share = np.zeros(int(history.start[-1]))
    for place, position in enumerate(history.index):
        first, last = history.start[place], history.start[place + 1]
        flags = suspect[position]
        values = np.asarray(0.0 if flags is None else flags, dtype=np.float64)
        if values.ndim > 0 and values.shape != (last - first,):
            raise ValueError(
                f"suspect: commit {position} has {last - first} launches but {values.size} flags"
            )
        if not ((values >= 0.0) & (values <= 1.0)).all():
            raise ValueError(f"suspect: commit {position}: a share lies between 0 and 1")
        share[first:last] = values
    keep = share < 1.0
    if keep.all():
        return Trusted(history=history, weight=1.0 - share)
    number = np.cumsum(keep) - 1
    left = np.add.reduceat(keep.astype(np.int64), history.start[:-1])
    blocks = []
    for rows, block in history.blocks:
        chosen = keep[rows]
        if chosen.any():
            blocks.append((number[rows[chosen]], block[chosen]))
    kept = History(
        index=history.index[left > 0],
        start=np.concatenate([[0], np.cumsum(left[left > 0])]).astype(np.int64),
        blocks=tuple(blocks),
        length=history.length,
    )
    return Trusted(history=kept, weight=1.0 - share[keep])


def at_commits(value: Floats, index: NDArray[np.int64], wanted: NDArray[np.int64]) -> Floats:
    """A machine level known at some commits, at others: straight between, constant beyond."""
    return np.interp(wanted, index, value)
