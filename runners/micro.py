"""The micro tier: one function at given shapes, found right before it is timed.

options: inputs, reference, work ("module:function"), providers ({name: "module:function"}), mutates (the function
may write into its arguments), reduction (length of the longest sum). See docs/measuring.md for the contract.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from . import ceilings
from .context import Context
from .correctness import WrongResult
from .loading import CaseError, check_accepts, resolve
from .memory import PeakMemory
from .quantities import Kind, measured, select
from .result import CaseSpec, Measurement, MetricSpec, RunResult, Status
from .stopping import MedianPrecision
from .subject import Judge, Slot, Subject, normalized_arguments
from .timing import Timing, time_on_cpu
from .values import is_tensor, leaves, size_bytes

KNOWN_OPTIONS = frozenset({"inputs", "reference", "work", "providers", "mutates", "reduction"})
_NAMED = {
    "time": Kind.TIME,
    "single_call": Kind.TIME,
    "host_overhead": Kind.TIME,
    "bandwidth": Kind.BANDWIDTH,
    "rate": Kind.RATE,
    "roofline": Kind.SHARE,
    "peak_memory": Kind.MEMORY,
}
_WORK_KEYS = {"bandwidth": ("bytes",), "rate": ("flops",), "roofline": ("bytes", "flops")}
_CUDA_ONLY = frozenset({"single_call", "host_overhead", "roofline", "peak_memory"})
CPU_SLOTS = 4
CPU_SLOT_BYTES = 512 * 2**20
# Inputs with other seeds that are only checked, never timed.
CHECK_ROUNDS = 2
# No core moves or computes more than this: a result beyond it did not do the work that it declares.
_CORE_BYTES_PER_S = 1e12
_CORE_FLOPS_PER_S = 1e12
# A ceiling is measured, so a good kernel may beat it by a little.
_ABOVE_CEILING = 1.15


def run_case(case: CaseSpec, context: Context) -> RunResult:
    """Measure the case. Raises CaseError when it cannot be measured as declared."""
    wanted = select(case.metrics, headline="time", named=_NAMED, tier="micro")
    subject = load_subject(case, context)
    work = _work(case)
    for name, quantity in wanted.items():
        needed = _WORK_KEYS.get(quantity, ())
        if needed and not any(key in work for key in needed):
            raise CaseError(f"metric {name!r} needs options.work to count {' or '.join(needed)}")
    judge = Judge(subject)
    base = RunResult(case.benchmark, case.params, case.tier, Status.OK, work=work or None)
    try:
        slots = prepare(judge, context)
        timing = _time(judge, slots, context)
        judge.inputs_untouched(slots)
    except WrongResult as error:
        return dataclasses.replace(
            base, status=Status.INCORRECT, reason=str(error), correctness=judge.record()
        )
    for note in timing.notes:
        context.log(note)
    bench = _Bench(case, context, judge, slots, timing, work)
    base = dataclasses.replace(
        base,
        measurements=bench.measurements(wanted),
        correctness=judge.record(),
        reason="; ".join(timing.notes),
    )
    if suspicion := bench.faster_than_possible():
        return dataclasses.replace(base, status=Status.INVALID, reason=suspicion)
    side = _providers(case, context, subject)
    return dataclasses.replace(base, measurements=[*base.measurements, *side])


def load_subject(case: CaseSpec, context: Context, *, entry: str | None = None) -> Subject:
    """The case's function with its inputs and reference. Raises CaseError naming what does not fit."""
    unknown = set(case.options) - KNOWN_OPTIONS
    if unknown:
        raise CaseError(f"options of {case.benchmark!r}: unknown {', '.join(sorted(unknown))}")
    if case.entry is None:
        raise CaseError("the micro tier needs an entry")
    function = resolve(entry or case.entry)
    reference = case.options.get("reference")
    return Subject(
        function=function,
        make=_maker(case, context, function),
        reference=None if reference is None else resolve(reference, role="reference"),
        mutates=bool(case.options.get("mutates", False)),
        reduction=case.options.get("reduction"),
        rtol=case.rtol,
        atol=case.atol,
    )


def prepare(judge: Judge, context: Context) -> list[Slot]:
    """Rotating slots, each verified; and rounds with other inputs. Raises WrongResult."""
    base = context.seed * 1000 % 2**31
    slots = [judge.subject.slot(base)]
    judge.examine(slots[0])
    if context.device == "cuda":
        from .cuda_timing import require_no_hidden_work

        require_no_hidden_work(judge, slots[0])
    for i in range(1, _slot_count(slots[0], context)):
        slots.append(judge.subject.slot(base + i))
        judge.examine(slots[-1])
    if judge.subject.reference is not None:
        for i in range(CHECK_ROUNDS):
            judge.examine(judge.subject.slot(base + len(slots) + i))
    return slots


def _slot_count(slot: Slot, context: Context) -> int:
    size = size_bytes(slot.pristine)
    if context.device == "cuda":
        from .cuda_timing import Device, slot_count

        return slot_count(size, Device.current())
    return CPU_SLOTS if size == 0 else max(2, min(CPU_SLOTS, CPU_SLOT_BYTES // (2 * size)))


def _time(judge: Judge, slots: list[Slot], context: Context) -> Timing:
    stopping = MedianPrecision(budget_s=context.budget_s)
    if context.device == "cuda":
        from .cuda_timing import Device, time_on_cuda

        # Warm-up takes up to half of the budget, timing the rest.
        stopping = MedianPrecision(budget_s=context.budget_s / 2)
        return time_on_cuda(
            judge, slots, stopping=stopping, budget_s=context.budget_s, device=Device.current()
        )
    return time_on_cpu(judge, slots, stopping=stopping, budget_s=context.budget_s)


def _maker(
    case: CaseSpec, context: Context, function: Callable[..., Any]
) -> Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]:
    inputs_entry = case.options.get("inputs")
    if inputs_entry is None:
        check_accepts(function, case.params, role="entry")
        return lambda seed: ((), dict(case.params))
    inputs = resolve(inputs_entry, role="inputs")
    check_accepts(inputs, {"seed": 0, "device": context.device, **case.params}, role="inputs")
    return lambda seed: normalized_arguments(inputs(seed=seed, device=context.device, **case.params))


def _work(case: CaseSpec) -> dict[str, float]:
    """FLOPs and bytes of one call, by the project's formula; empty when it declares none."""
    entry = case.options.get("work")
    if entry is None:
        return {}
    function = resolve(entry, role="work")
    check_accepts(function, case.params, role="work")
    work = function(**case.params)
    if not isinstance(work, Mapping) or not all(
        isinstance(value, (int, float)) and math.isfinite(value) and value >= 0 for value in work.values()
    ):
        raise CaseError(
            f"work {entry!r} must return finite numbers by name (flops, bytes), not {work!r:.200}"
        )
    return {str(name): float(value) for name, value in work.items()}


@dataclasses.dataclass(frozen=True)
class _Bench:
    """What was measured, and how the declared metrics follow from it."""

    case: CaseSpec
    context: Context
    judge: Judge
    slots: list[Slot]
    timing: Timing
    work: Mapping[str, float]

    def measurements(self, wanted: Mapping[str, str]) -> list[Measurement]:
        """The declared metrics that this device offers; what it does not is logged."""
        made = []
        for metric in self.case.metrics:
            quantity = wanted[metric.name]
            if quantity in _CUDA_ONLY and self.context.device != "cuda":
                self.context.log(f"metric {metric.name}: {quantity} is measured on CUDA only")
                continue
            mhz = self.timing.mhz if quantity == "time" else None
            made.append(measured(metric, self._values(quantity), mhz=mhz))
        return made

    def _values(self, quantity: str) -> list[float]:
        """Samples in the base unit of the quantity's kind."""
        samples = self.timing.samples_s
        if quantity == "time":
            return samples
        if quantity == "roofline":
            floor_s = self._floor_s()
            return [floor_s / sample for sample in samples]
        if quantity in _WORK_KEYS:
            return [self.work[_WORK_KEYS[quantity][0]] / sample for sample in samples]
        from .cuda_samplers import host_overhead_s
        from .cuda_timing import Device, single_call_s

        if quantity == "single_call":
            return single_call_s(self.judge, self.slots, device=Device.current())
        if quantity == "host_overhead":
            return host_overhead_s(self.judge, self.slots)
        return [float(self._peak_bytes())]

    def _peak_bytes(self) -> int:
        """Device memory that one call takes at its highest, beyond its inputs."""
        import torch

        slot = self.slots[0]
        before = int(torch.cuda.memory_allocated())
        memory = PeakMemory("cuda")
        self.judge.subject.function(*slot.args, **slot.kwargs)
        return memory.peak_bytes() - before

    def _floor_s(self, *, cached_bytes: float = 0.0) -> float:
        """Roofline time of one call, from the ceilings measured in this process."""
        dtypes = {
            str(leaf.dtype).removeprefix("torch.")
            for _, leaf in leaves(self.slots[0].pristine)
            if is_tensor(leaf)
        }
        return ceilings.measured().floor_s(
            bytes_moved=max(0.0, self.work.get("bytes", 0.0) - cached_bytes),
            flops=self.work.get("flops", 0.0),
            dtypes=dtypes,
        )

    def faster_than_possible(self) -> str | None:
        """Why the time cannot be true, when the work it declares is beyond the machine; else None."""
        if not self.work:
            return None
        fastest = min(self.timing.samples_s)
        if self.context.device == "cuda":
            # What a replay wrote last may still lie in the L2 when it ends.
            cached = ceilings.measured().l2_bytes / self.timing.batch
            floor_s = self._floor_s(cached_bytes=cached) / _ABOVE_CEILING
            where = "this GPU at its measured ceilings"
        else:
            cores = len(self.context.cpus or os.sched_getaffinity(0))
            floor_s = max(
                self.work.get("bytes", 0.0) / (_CORE_BYTES_PER_S * cores),
                self.work.get("flops", 0.0) / (_CORE_FLOPS_PER_S * cores),
            )
            where = f"{cores} cores"
        if fastest >= floor_s:
            return None
        return f"faster than possible: {fastest:.3g} s for work that takes {where} at least {floor_s:.3g} s"


def _providers(case: CaseSpec, context: Context, subject: Subject) -> list[Measurement]:
    """Other implementations of the same function, on the same inputs, as metrics `time.<name>`.

    Their direction is unknown: they inform, and never alert.
    """
    made = []
    for name, entry in sorted(case.options.get("providers", {}).items()):
        other = Judge(dataclasses.replace(subject, function=resolve(entry, role=f"provider {name}")))
        metric = MetricSpec(f"time.{name}", "s", None)
        try:
            timing = _time(other, prepare(other, context), context)
        except WrongResult as error:
            context.log(f"provider {name} is not measured: {error}")
            continue
        made.append(measured(metric, timing.samples_s, mhz=timing.mhz))
    return made
