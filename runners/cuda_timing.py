"""Timing on the GPU: a CUDA graph of the call over rotating buffers, with every output checked.

One sample is one replay of a graph that holds the call once on each slot (12 or more), divided by their number.
Before it, outside of the events, the outputs are filled with NaN and the L2 is emptied by reading (a flush by
writing would leave dirty lines whose way to memory the candidate then pays). So every call finds its inputs in
device memory, and the launch gaps of single calls are gone. A call that cannot be captured is timed by events
around single calls behind a blocking kernel, which the notes say.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from .correctness import Tolerance, WrongResult, is_floating
from .cuda_samplers import EventSampler, GraphSampler, Sampler, block, event
from .stopping import FixedCount, Stopping
from .subject import Judge, Slot, Subject
from .timing import Timing
from .values import is_tensor, leaves, overwrite

DEVICE = "cuda"
GRAPH_SLOTS = 12
MAX_SLOTS = 32
# Slots, their copies and verified outputs may take this share of the device's memory.
MEMORY_SHARE = 0.4
FLUSH_FACTOR = 2
SYNC_EVERY = 10
WARM_MIN_S = 0.25
WARM_MAX_SHARE = 0.5
WARM_WINDOW = 8
SETTLED_TIME = 0.003
SETTLED_CLOCK = 0.003
REFRESH_AFTER = 10
REFRESH_SEED = 2_000_003
# The device rests meanwhile and a power-capped clock rises: it is loaded again before more samples count.
REWARM_S = 0.15
# A blocking kernel spins while the host queues a sample, so that the device never waits inside the events:
# about 0.15 ms, and twice the host time of the sampler's own calls.
BLOCK_CYCLES = 300_000
CYCLES_PER_S = 2e9
# Work still running this long after the call's own stream has finished hides on another stream.
HIDDEN_WORK_S = 50e-6


@dataclass(frozen=True)
class Device:
    """Facts of the GPU that sizes depend on."""

    l2_bytes: int
    memory_bytes: int

    @classmethod
    def current(cls) -> Device:
        properties: Any = torch.cuda.get_device_properties(0)
        return cls(int(properties.L2_cache_size), int(properties.total_memory))


def slot_count(slot_bytes: int, device: Device) -> int:
    """Enough slots that together they are twice the L2, at least 12, at most 32, within the memory's share."""
    wanted = max(GRAPH_SLOTS, -(-2 * device.l2_bytes // max(1, slot_bytes)))
    # Inputs, their pristine copies, outputs and the verified ones: about four times the inputs.
    fitting = int(device.memory_bytes * MEMORY_SHARE) // max(1, 4 * slot_bytes)
    return max(2, min(wanted, MAX_SLOTS, fitting))


class Bench:
    """Samples, their clocks, and the checks of every output."""

    def __init__(self, judge: Judge, slots: Sequence[Slot], device: Device) -> None:
        self._judge = judge
        self._slots = list(slots)
        words = FLUSH_FACTOR * max(device.l2_bytes, 2**20) // 4
        self._flush = torch.zeros(words, dtype=torch.float32, device=DEVICE)
        self._flushed = torch.zeros((), dtype=torch.float32, device=DEVICE)
        self._wrong = torch.zeros((), dtype=torch.bool, device=DEVICE)
        self._clock, self.clock_note = _clock_counter(SYNC_EVERY)
        self._bitwise = True

    def take(self, sampler: Sampler, count: int) -> list[tuple[float, float | None]]:
        """`count` (at most SYNC_EVERY) samples: seconds of one call, SM clock in MHz. Raises WrongResult."""
        assert count <= SYNC_EVERY
        events = []
        for i in range(count):
            self._prepare(sampler)
            start, end = event(), event()
            if self._clock is not None:
                self._clock.begin(i)
            sampler.enqueue(start, end)
            if self._clock is not None:
                self._clock.end(i)
            self._check(sampler.outputs())
            events.append((start, end))
        torch.cuda.synchronize()
        self._raise_if_wrong(sampler)
        clocks = [None] * count if self._clock is None else self._clock.mhz(count)
        times = [float(start.elapsed_time(end)) * 1e-3 / sampler.calls for start, end in events]
        return list(zip(times, clocks, strict=True))

    def require_reproducible(self, sampler: Sampler) -> None:
        """One replay judged on the host: bit for bit from now on if it was, else within the tolerance."""
        self._prepare(sampler)
        sampler.enqueue(event(), event())
        torch.cuda.synchronize()
        before = self._judge.compared
        for slot, observed in sampler.outputs():
            self._judge.recheck_observed(slot, observed)
        self._bitwise = self._judge.compared == before

    def _prepare(self, sampler: Sampler) -> None:
        if self._judge.subject.mutates:
            for slot in self._slots:
                overwrite((slot.args, slot.kwargs), slot.pristine)
        else:
            _poison(sampler.outputs(), self._slots)
        torch.sum(self._flush, dim=0, out=self._flushed)
        block(BLOCK_CYCLES + int(2 * sampler.host_s * CYCLES_PER_S))

    def _check(self, outputs: Sequence[tuple[Slot, Any]]) -> None:
        """Enqueue the comparison of every output with its verified one; nothing waits."""
        if self._judge.subject.reference is None:
            return
        for slot, observed in outputs:
            verified = dict(leaves(slot.verified))
            for path, leaf in leaves(observed):
                if is_tensor(leaf) and leaf.numel():
                    tolerance = None if self._bitwise else self._judge.tolerances.get(path)
                    self._wrong |= _differs(leaf.detach(), verified[path], tolerance)

    def _raise_if_wrong(self, sampler: Sampler) -> None:
        if not bool(self._wrong):
            return
        self._wrong.zero_()
        # The last sample may show by how much; else an earlier one was wrong and this one right.
        for slot, observed in sampler.outputs():
            self._judge.recheck_observed(slot, observed)
        if self._bitwise:
            # Right within the tolerance, only not the same bits as before: from now on judged by tolerance.
            self._bitwise = False
            return
        raise WrongResult("the output of a timed call differs from the output of the same call before")

    def release(self) -> None:
        """Give the flush buffer back."""
        self._flush = self._flush.new_empty(0)


def time_on_cuda(
    judge: Judge, slots: Sequence[Slot], *, stopping: Stopping, budget_s: float, device: Device
) -> Timing:
    """Time the subject over `slots`, each already verified. Raises WrongResult."""
    notes: list[str] = []
    bench = Bench(judge, slots, device)
    if bench.clock_note:
        notes.append(bench.clock_note)
    sampler = _sampler(judge, slots, notes)
    bench.require_reproducible(sampler)
    _warm(bench, sampler, budget_s=budget_s)
    samples: list[float] = []
    clocks: list[float | None] = []
    begun = perf_counter()
    refreshing_s = 0.0
    while not stopping.done(samples, perf_counter() - begun - refreshing_s):
        for duration, mhz in bench.take(sampler, SYNC_EVERY):
            samples.append(duration)
            clocks.append(mhz)
        if len(samples) == REFRESH_AFTER and judge.subject.reference is not None:
            started = perf_counter()
            _refresh(judge, slots, seed=REFRESH_SEED)
            _load(bench, sampler, seconds=min(REWARM_S, budget_s / 8))
            refreshing_s += perf_counter() - started
    bench.release()
    if len(slots) < GRAPH_SLOTS:
        notes.append(f"only {len(slots)} sets of inputs fit into memory")
    return Timing(samples, sampler.method, mhz=_filled(clocks), batch=sampler.calls, notes=notes)


def prime() -> None:
    """Take a trivial case through the whole of a measurement and forget it.

    On an H200 (torch 2.11, CUDA 13.0) each kernel in the first graph of a process was 0.35 us faster than in all
    later ones, whichever case came first: 8 % of a short kernel. Nothing measured is first after this.
    """
    base = torch.arange(1024.0, device=DEVICE)
    subject = Subject(function=_add_one, make=lambda seed: ((base + seed,), {}), reference=_add_one)
    judge = Judge(subject)
    slots = [subject.slot(seed) for seed in range(GRAPH_SLOTS)]
    for slot in slots:
        judge.examine(slot)
    time_on_cuda(judge, slots, stopping=FixedCount(2 * SYNC_EVERY), budget_s=0.1, device=Device.current())
    torch.cuda.empty_cache()


def _add_one(x: Any) -> Any:
    return x + 1


def single_call_s(judge: Judge, slots: Sequence[Slot], *, device: Device, count: int = 50) -> list[float]:
    """Event time of single calls behind a blocking kernel, in seconds: with the launch gaps of one call."""
    bench = Bench(judge, slots, device)
    sampler = EventSampler(judge, slots)
    bench.take(sampler, SYNC_EVERY)
    taken = [bench.take(sampler, SYNC_EVERY) for _ in range(-(-count // SYNC_EVERY))]
    bench.release()
    return [duration for batch in taken for duration, _ in batch]


def require_no_hidden_work(judge: Judge, slot: Slot) -> None:
    """Raises WrongResult when the device still works after the call's own stream has finished.

    The shortest of three counts, so that a disturbance is no finding. Restores arguments that were written to.
    """
    hidden = []
    for _ in range(3):
        torch.cuda.synchronize()
        judge.subject.function(*slot.args, **slot.kwargs)
        done = event()
        done.record()
        done.synchronize()
        start = perf_counter()
        torch.cuda.synchronize()
        hidden.append(perf_counter() - start)
    if judge.subject.mutates:
        overwrite((slot.args, slot.kwargs), slot.pristine)
    if min(hidden) > HIDDEN_WORK_S:
        raise WrongResult(
            f"the device still works {min(hidden) * 1e6:.0f} us after the call's stream has finished: "
            "work on another stream that the caller's does not wait for"
        )


def _sampler(judge: Judge, slots: Sequence[Slot], notes: list[str]) -> Sampler:
    try:
        return GraphSampler(judge, slots)
    except WrongResult:
        raise
    except (RuntimeError, AssertionError) as error:
        torch.cuda.synchronize()
        text = str(error).strip().splitlines()
        notes.append(
            "timed by events around single calls: it cannot be captured in a CUDA graph "
            f"({text[0][:160] if text else type(error).__name__})"
        )
        return EventSampler(judge, slots)


def _warm(bench: Bench, sampler: Sampler, *, budget_s: float) -> None:
    """Until two windows in a row agree in time and clock, for at least 0.25 s and at most half the budget."""
    begun = perf_counter()
    previous: tuple[float, float] | None = None
    while True:
        taken = bench.take(sampler, WARM_WINDOW)
        time_s = statistics.median(duration for duration, _ in taken)
        mhz = statistics.median([clock for _, clock in taken if clock is not None] or [1.0])
        elapsed = perf_counter() - begun
        settled = (
            previous is not None
            and abs(time_s - previous[0]) <= SETTLED_TIME * previous[0]
            and abs(mhz - previous[1]) <= SETTLED_CLOCK * previous[1]
        )
        if elapsed >= WARM_MAX_SHARE * budget_s or (settled and elapsed >= min(WARM_MIN_S, budget_s / 4)):
            return
        previous = (time_s, mhz)


def _load(bench: Bench, sampler: Sampler, *, seconds: float) -> None:
    """Samples that do not count, for so long."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        bench.take(sampler, WARM_WINDOW)


def _refresh(judge: Judge, slots: Sequence[Slot], *, seed: int) -> None:
    """New contents in the memory of one slot, verified."""
    slot = slots[seed % len(slots)]
    judge.subject.refill(slot, seed)
    judge.examine(slot)
    if judge.subject.mutates:
        overwrite((slot.args, slot.kwargs), slot.pristine)


def _poison(outputs: Sequence[tuple[Slot, Any]], slots: Sequence[Slot]) -> None:
    """Fill every floating output with NaN, except where it shares memory with an input."""
    inputs = {
        leaf.untyped_storage().data_ptr()
        for slot in slots
        for _, leaf in leaves((slot.args, slot.kwargs))
        if is_tensor(leaf)
    }
    for _, observed in outputs:
        for _, leaf in leaves(observed):
            if is_tensor(leaf) and is_floating(leaf) and leaf.untyped_storage().data_ptr() not in inputs:
                leaf.detach().fill_(float("nan"))


def _differs(leaf: Any, verified: Any, tolerance: Tolerance | None) -> Any:
    """A boolean on the device: whether any element differs (in bits, or beyond the element bound)."""
    if tolerance is None or not is_floating(leaf):
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(leaf.element_size())
        if whole is None or leaf.is_complex():
            return (leaf != verified).any()
        return (leaf.contiguous().view(whole) != verified.contiguous().view(whole)).any()
    wide = torch.float64 if leaf.dtype == torch.float64 else torch.float32
    ours, wanted = leaf.to(wide), verified.to(wide)
    rms = 0.0 if tolerance.explicit else wanted.square().mean().sqrt()
    bound = tolerance.atol + tolerance.rtol * (wanted.abs() + rms)
    # Negated, so that NaN on one side differs; where both are the same infinity or NaN nothing is wrong.
    right = ((ours - wanted).abs() <= bound) | (ours == wanted) | (ours.isnan() & wanted.isnan())
    return ~right.all()


def _clock_counter(capacity: int) -> tuple[Any, str]:
    try:
        from .clock import ClockCounter
    except ImportError:
        return None, "no SM clock: triton is not installed"
    return ClockCounter(capacity), ""


def _filled(clocks: Sequence[float | None]) -> list[float] | None:
    """Clocks with the gaps (two SMs) filled by the median of the rest; None when there are no clocks."""
    known = [mhz for mhz in clocks if mhz is not None]
    if not known:
        return None
    middle = statistics.median(known)
    return [middle if mhz is None else mhz for mhz in clocks]
