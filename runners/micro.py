"""The micro tier: one function at given shapes, found right before it is timed.

options: inputs, reference, work ("module:function"), providers ({name: "module:function"}), mutates (the function
may write into its arguments), reduction (length of the longest sum). See docs/measuring.md for the contract.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from .context import Context
from .correctness import WrongResult
from .loading import CaseError, check_accepts, resolve
from .quantities import Kind, measured, select
from .result import CaseSpec, Measurement, MetricSpec, RunResult, Status
from .stopping import MedianPrecision
from .subject import Judge, Slot, Subject, normalized_arguments
from .timing import Timing, time_on_cpu
from .values import size_bytes

KNOWN_OPTIONS = frozenset({"inputs", "reference", "work", "providers", "mutates", "reduction"})
_NAMED = {
    "time": Kind.TIME,
    "single_call": Kind.TIME,
    "host_overhead": Kind.TIME,
    "bandwidth": Kind.BANDWIDTH,
    "rate": Kind.RATE,
}
_WORK_KEYS = {Kind.BANDWIDTH: "bytes", Kind.RATE: "flops"}
CPU_SLOTS = 4
CPU_SLOT_BYTES = 512 * 2**20
# Inputs with other seeds that are only checked, never timed.
CHECK_ROUNDS = 2
# No core moves or computes more than this: a result beyond it did not do the work that it declares.
_CORE_BYTES_PER_S = 1e12
_CORE_FLOPS_PER_S = 1e12


def run_case(case: CaseSpec, context: Context) -> RunResult:
    """Measure the case. Raises CaseError when it cannot be measured as declared."""
    wanted = select(case.metrics, headline="time", named=_NAMED, tier="micro")
    subject = load_subject(case, context)
    work = _work(case)
    for metric in case.metrics:
        key = _WORK_KEYS.get(_NAMED[wanted[metric.name]])
        if key is not None and key not in work:
            raise CaseError(f"metric {metric.name!r} needs options.work to count {key}")
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
    base = dataclasses.replace(
        base, measurements=_measurements(case, wanted, timing, work), correctness=judge.record()
    )
    if suspicion := faster_than_possible(timing, work, cores=len(context.cpus or ()) or None):
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
    size = size_bytes(slots[0].pristine)
    count = CPU_SLOTS if size == 0 else max(2, min(CPU_SLOTS, CPU_SLOT_BYTES // max(1, 2 * size)))
    slots += [judge.subject.slot(base + i) for i in range(1, count)]
    for slot in slots:
        judge.examine(slot)
    if judge.subject.reference is not None:
        for i in range(CHECK_ROUNDS):
            judge.examine(judge.subject.slot(base + count + i))
    return slots


def _time(judge: Judge, slots: list[Slot], context: Context) -> Timing:
    return time_on_cpu(
        judge, slots, stopping=MedianPrecision(budget_s=context.budget_s), budget_s=context.budget_s
    )


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


def _measurements(
    case: CaseSpec, wanted: Mapping[str, str], timing: Timing, work: Mapping[str, float]
) -> list[Measurement]:
    """The declared metrics that this device offers; single_call and host_overhead exist on CUDA alone."""
    made = []
    for metric in case.metrics:
        quantity = wanted[metric.name]
        if quantity == "time":
            made.append(measured(metric, timing.samples_s, mhz=timing.mhz))
        elif _NAMED[quantity] in _WORK_KEYS:
            amount = work[_WORK_KEYS[_NAMED[quantity]]]
            made.append(measured(metric, [amount / sample for sample in timing.samples_s]))
    return made


def faster_than_possible(timing: Timing, work: Mapping[str, float], *, cores: int | None) -> str | None:
    """Why the time cannot be true, when the work it declares is beyond any such machine; else None."""
    import os

    cores = cores or len(os.sched_getaffinity(0))
    fastest = min(timing.samples_s)
    floor = max(
        work.get("bytes", 0.0) / (_CORE_BYTES_PER_S * cores),
        work.get("flops", 0.0) / (_CORE_FLOPS_PER_S * cores),
    )
    if fastest >= floor:
        return None
    return (
        f"faster than possible: {fastest:.3g} s for work that takes at least {floor:.3g} s on {cores} cores"
    )


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
