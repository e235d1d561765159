"""A history as it is handed in -> arrays with one row per launch, or a ValueError that names the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class History:
    """The measured commits of a history, gaps taken out.

    index: position of each measured commit in the history as given, shape (n,).
    start: launches of measured commit i are rows start[i]:start[i + 1], shape (n + 1,).
    samples: the samples of each launch, ascending, in the metric's unit. Launches of equal size share a block:
    `blocks` maps the number of samples S to (rows, values) with values of shape (rows, S).
    length: commits in the history as given, gaps included.
    """

    index: Ints
    start: Ints
    blocks: tuple[tuple[Ints, Floats], ...]
    length: int

    @property
    def n(self) -> int:
        return len(self.index)

    @property
    def commit(self) -> Ints:
        """Measured commit of each launch, shape (launches,)."""
        return np.repeat(np.arange(self.n), self.start[1:] - self.start[:-1])


def read_history(
    history: Sequence[Any] | NDArray[Any], *, allow_negative: bool, first_commit: int = 0
) -> History:
    """Entries are None (a gap), a number, or a list of launches; a launch is a number or a list of samples.

    Empty launches are left out and a commit without launches is a gap. Raises ValueError naming commit index and
    launch for NaN, an infinite value, or a negative value where the metric cannot be negative; first_commit is added
    to the index in such a message.
    """
    table = _rectangle(history)
    if table is not None:
        n, launches, size = table.shape
        _check(
            table.reshape(n * launches, size),
            first_commit + np.repeat(np.arange(n), launches),
            launches,
            allow_negative=allow_negative,
        )
        block = np.sort(table.reshape(n * launches, size), axis=1)
        return History(
            index=np.arange(n),
            start=np.arange(0, n * launches + 1, launches),
            blocks=((np.arange(n * launches), block),) if len(block) else (),
            length=n,
        )
    return _read_ragged(history, allow_negative=allow_negative, first_commit=first_commit)


def join(one: History, two: History) -> History:
    """The commits of `one`, then those of `two`; both count positions in the same history, as far as `two` goes."""
    offset = int(one.start[-1])
    blocks = {block.shape[1]: (rows, block) for rows, block in one.blocks}
    for rows, block in two.blocks:
        size = block.shape[1]
        if size in blocks:
            blocks[size] = (
                np.concatenate([blocks[size][0], rows + offset]),
                np.concatenate([blocks[size][1], block]),
            )
        else:
            blocks[size] = (rows + offset, block)
    return History(
        index=np.concatenate([one.index, two.index]),
        start=np.concatenate([one.start, two.start[1:] + offset]),
        blocks=tuple(blocks[size] for size in sorted(blocks)),
        length=two.length,
    )


def newest(history: History, commits: int) -> History:
    """The last `commits` measured commits."""
    first = max(0, history.n - commits)
    offset = int(history.start[first])
    kept = ((rows >= offset, rows, block) for rows, block in history.blocks)
    return History(
        index=history.index[first:],
        start=history.start[first:] - offset,
        blocks=tuple((rows[keep] - offset, block[keep]) for keep, rows, block in kept if keep.any()),
        length=history.length,
    )


def _rectangle(history: Sequence[Any] | NDArray[Any]) -> Floats | None:
    """The history as (commits, launches, samples) if every commit has the same shape, else None."""
    if not isinstance(history, np.ndarray):
        if not len(history) or any(entry is None for entry in history):
            return None
        try:
            history = np.asarray(history, dtype=np.float64)
        except (ValueError, TypeError):
            return None
    if history.size == 0 or history.ndim > 3 or history.dtype == object:
        return None
    table = np.asarray(history, dtype=np.float64)
    return table.reshape(table.shape + (1,) * (3 - table.ndim))


def _read_ragged(
    history: Sequence[Any] | NDArray[Any], *, allow_negative: bool, first_commit: int
) -> History:
    index: list[int] = []
    counts: list[int] = []
    rows: dict[int, list[int]] = {}
    values: dict[int, list[Floats]] = {}
    row = 0
    for position, entry in enumerate(history):
        launches = _launches(entry, first_commit + position)
        if not launches:
            continue
        for number, launch in enumerate(launches):
            _check(
                launch[None, :],
                np.array([first_commit + position]),
                1,
                allow_negative=allow_negative,
                first_launch=number,
            )
            rows.setdefault(len(launch), []).append(row)
            values.setdefault(len(launch), []).append(launch)
            row += 1
        index.append(position)
        counts.append(len(launches))
    return History(
        index=np.array(index, dtype=np.int64),
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        blocks=tuple(
            (np.array(rows[size]), np.sort(np.array(values[size]), axis=1)) for size in sorted(rows)
        ),
        length=len(history),
    )


def _launches(entry: Any, position: int) -> list[Floats]:
    if entry is None:
        return []
    launches = list(entry) if isinstance(entry, Sequence | np.ndarray) and not _is_number(entry) else [entry]
    found = []
    for number, launch in enumerate(launches):
        if launch is None:
            continue
        try:
            samples = np.atleast_1d(np.asarray(launch, dtype=np.float64))
        except (TypeError, ValueError):
            raise ValueError(
                f"commit {position}, launch {number}: not a number or a list of numbers"
            ) from None
        if samples.ndim > 1:
            raise ValueError(
                f"commit {position}, launch {number}: samples are nested deeper than commit, launch, sample"
            )
        if samples.size:
            found.append(samples)
    return found


def _is_number(entry: Any) -> bool:
    """A zero-dimensional array is a number; a string is neither a number nor a list of launches."""
    return isinstance(entry, str) or (isinstance(entry, np.ndarray) and entry.ndim == 0)


def _check(
    rows: Floats,
    commit: Ints,
    launches: int,
    *,
    allow_negative: bool,
    first_launch: int = 0,
) -> None:
    with np.errstate(invalid="ignore"):
        wrong = ~np.isfinite(rows) if allow_negative else ~(np.isfinite(rows) & (rows >= 0.0))
    if not wrong.any():
        return
    row, sample = np.argwhere(wrong)[0]
    value = float(rows[row, sample])
    what = "is negative" if np.isfinite(value) else "is not finite"
    raise ValueError(
        f"commit {commit[row]}, launch {first_launch + row % launches}, sample {sample}: {value!r} {what}"
    )
