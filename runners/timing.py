"""Timing on the host: how long one call takes, from samples that are long enough to be told from the timer."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from .correctness import WrongResult
from .stopping import Stopping
from .subject import Judge, Slot
from .values import cloned

# A sample shorter than this would be mostly timer: perf_counter_ns costs 50 to 100 ns.
MIN_SAMPLE_NS = 50_000
MAX_BATCH = 10_000
# Warm until two successive batches agree this well, for at most a share of the budget.
SETTLED = 0.02
WARM_SHARE = 0.2
# After so many samples one slot gets new contents in the same memory.
REFRESH_AFTER = frozenset({3, 6, 12, 25, 50, 100, 200, 400, 800})
REFRESH_SEED = 1_000_003
# A call on inputs never seen must not take this much longer than one on inputs seen before.
MEMO_FACTOR = 4.0
MEMO_MIN_EXCESS_S = 200e-6
MEMO_MIN_CALLS = 3


@dataclass(frozen=True)
class Timing:
    """Samples of one call in seconds. `mhz`: SM clock over each. `method` names how they were taken."""

    samples_s: list[float]
    method: str
    mhz: list[float] | None = None
    batch: int = 1
    notes: list[str] = field(default_factory=list)


def time_on_cpu(
    judge: Judge,
    slots: Sequence[Slot],
    *,
    stopping: Stopping,
    budget_s: float,
    clock: Callable[[], int] = perf_counter_ns,
) -> Timing:
    """Time the subject over rotating `slots`, each already verified. Raises WrongResult.

    Every output that is timed is checked, between samples. Garbage collection is off inside a sample.
    """
    loop = _Loop(judge, slots, clock)
    loop.size_batch(budget_ns=int(budget_s * WARM_SHARE * 1e9))
    samples: list[float] = []
    fresh: list[float] = []
    begun = clock()
    while not stopping.done(samples, (clock() - begun) * 1e-9):
        samples.append(loop.sample_ns() * 1e-9 / loop.batch)
        if len(samples) in REFRESH_AFTER:
            fresh.append(loop.refreshed_ns(seed=REFRESH_SEED + len(samples)) * 1e-9)
    _require_computed(samples, fresh)
    return Timing(samples, "perf_counter", batch=loop.batch)


def _require_computed(samples: Sequence[float], fresh: Sequence[float]) -> None:
    """Raises WrongResult when inputs never seen before take far longer than those that come again."""
    if len(fresh) < MEMO_MIN_CALLS:
        return
    usual, first = statistics.median(samples), min(fresh)
    if first > MEMO_FACTOR * usual and first - usual > MEMO_MIN_EXCESS_S:
        raise WrongResult(
            f"on inputs not seen before a call takes {first:.3g} s, on repeated ones {usual:.3g} s: "
            "results are remembered instead of computed"
        )


class _Loop:
    """Takes one sample: `batch` calls in a row, over the slots in turn."""

    def __init__(self, judge: Judge, slots: Sequence[Slot], clock: Callable[[], int]) -> None:
        self._judge = judge
        self._slots = list(slots)
        self._clock = clock
        self._next = 0
        self.batch = 1
        # What a call wrote into its arguments is undone before the next sample, so each slot serves once.
        self._largest = len(self._slots) if judge.subject.mutates else MAX_BATCH

    def size_batch(self, *, budget_ns: int) -> None:
        """Warm up, and double the batch until a sample is long enough and two in a row agree."""
        spent = 0
        previous = 0.0
        while spent < budget_ns:
            duration = self.sample_ns()
            spent += duration
            per_call = duration / self.batch
            if duration < MIN_SAMPLE_NS and self.batch < self._largest:
                self.batch = min(self._largest, self.batch * 2)
                continue
            if previous and abs(per_call - previous) <= SETTLED * previous:
                return
            previous = per_call

    def refreshed_ns(self, *, seed: int) -> int:
        """Write new contents into one slot's own memory and verify the output: a result that is kept by the
        address of its input is stale now. Nanoseconds of that one call; 0 where the case has no inputs."""
        slot = self._slots[seed % len(self._slots)]
        if not slot.args and self._judge.subject.reference is None:
            return 0
        self._judge.subject.refill(slot, seed)
        return self._judge.examine(slot, clock=self._clock)

    def sample_ns(self) -> int:
        """Nanoseconds of one batch; its outputs are checked before the next."""
        chosen = [self._slots[(self._next + i) % len(self._slots)] for i in range(self.batch)]
        self._next = (self._next + self.batch) % len(self._slots)
        if self._judge.subject.mutates:
            for slot in chosen:
                slot.args, slot.kwargs = cloned(slot.pristine)
        calls = [(slot.args, slot.kwargs) for slot in chosen]
        outputs: list[Any] = [None] * self.batch
        function, clock = self._judge.subject.function, self._clock
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            start = clock()
            for i, (args, kwargs) in enumerate(calls):
                outputs[i] = function(*args, **kwargs)
            duration = clock() - start
        finally:
            if was_enabled:
                gc.enable()
        for slot, output in zip(chosen, outputs, strict=True):
            self._judge.recheck(slot, output)
        return duration
