"""The step tier: one training or inference step, phase by phase, gated by its first losses.

options: golden (JSON list of losses, a path relative to the root), reference ("module:function" run the same
way), steps (how many to time; default: until the median is precise), seed (default 0: the losses must not depend
on the launch), losses (how many to compare with a reference, default 5), warmup (steps before timing, default 3).
See docs/measuring.md for the contract.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from .context import Context
from .loading import CaseError, check_accepts, resolve
from .memory import PeakMemory
from .quantities import Kind, kind_of, measured
from .result import CaseSpec, Measurement, RunResult, Status
from .stopping import FixedCount, MedianPrecision, Stopping

KNOWN_OPTIONS = frozenset({"golden", "reference", "steps", "seed", "warmup", "losses"})
DEFAULT_LOSSES = 5
DEFAULT_WARMUP = 3
DEFAULT_RTOL = 1e-3
# A step takes milliseconds to seconds: fewer samples than for a kernel.
MIN_SAMPLES = 20
Clock = Callable[[], int]


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step: in all, and by phase."""

    total_s: float
    phases_s: dict[str, float]


class Step:
    """The project's object, ready to step. Raises CaseError when it breaks the contract."""

    def __init__(self, built: Any, *, device: str, clock: Clock = perf_counter_ns) -> None:
        phases = getattr(built, "phases", None)
        if not isinstance(phases, Mapping) or not phases:
            raise CaseError("the step's object has no `phases` (a mapping of name to callable)")
        for name, phase in phases.items():
            if not callable(phase):
                raise CaseError(f"phase {name!r} of the step is not callable")
        self._built = built
        self._phases: dict[str, Callable[[], Any]] = dict(phases)
        self._clock = clock
        self._cuda = device == "cuda"

    @property
    def names(self) -> list[str]:
        return list(self._phases)

    def run(self) -> tuple[StepTimes, float | None]:
        """One step: its times, and its loss read outside of them (None where it gives none).

        The total is wall time with the device idle at both ends. On CUDA the phases are the stretches of the
        device's timeline between events, so nothing waits inside the step and overlap stays what it is.
        """
        marks = _DeviceMarks() if self._cuda else _HostMarks(self._clock)
        result = None
        marks.wait()
        start = self._clock()
        marks.set()
        for name, phase in self._phases.items():
            value = phase()
            marks.set()
            if name == "forward":
                result = value
        marks.wait()
        total_s = (self._clock() - start) * 1e-9
        phases = dict(zip(self._phases, marks.stretches_s(), strict=True))
        return StepTimes(total_s, phases), self._loss(result)

    def _loss(self, forward: Any) -> float | None:
        reader = getattr(self._built, "loss", None)
        value = reader() if callable(reader) else (forward if reader is None else reader)
        try:
            return None if value is None else float(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError, RuntimeError):
            return None


def run_case(case: CaseSpec, context: Context) -> RunResult:
    """Measure the case. Raises CaseError when it cannot be measured as declared."""
    unknown = set(case.options) - KNOWN_OPTIONS
    if unknown:
        raise CaseError(f"options of {case.benchmark!r}: unknown {', '.join(sorted(unknown))}")
    if case.entry is None:
        raise CaseError("the step tier needs an entry")
    for metric in case.metrics:
        if kind_of(metric, tier="step") not in (Kind.TIME, Kind.MEMORY):
            raise CaseError(
                f"metric {metric.name!r}: the step tier measures time and memory, not {metric.unit!r}"
            )
    expected, source = _expected_losses(case, context)
    memory = PeakMemory(context.device)
    step = _build(case, context, case.entry, role="entry")
    warmup = int(case.options.get("warmup", DEFAULT_WARMUP))
    count = int(case.options.get("losses", DEFAULT_LOSSES)) if expected is None else len(expected)
    losses = [step.run()[1] for _ in range(max(warmup, count))][:count]
    correctness = {"gate": source, "losses": losses, "expected": expected}
    base = RunResult(
        case.benchmark, case.params, case.tier, Status.OK, correctness=_finite_losses(correctness)
    )
    if wrong := _why_wrong(losses, expected, case):
        return dataclasses.replace(base, status=Status.INCORRECT, reason=wrong)
    times = _sample(step, context, steps=case.options.get("steps"))
    measurements = _measurements(case, step, times, memory.peak_bytes())
    reason = (
        "" if expected is not None else "no golden losses and no reference: this step has no correctness gate"
    )
    return dataclasses.replace(base, measurements=measurements, reason=reason)


def _build(case: CaseSpec, context: Context, entry: str, *, role: str) -> Step:
    """Seeds everything that the step may draw from, then builds it."""
    function = resolve(entry, role=role)
    seed = int(case.options.get("seed", 0))
    arguments = {"seed": seed, "device": context.device, **case.params}
    check_accepts(function, arguments, role=role)
    random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    return Step(function(**arguments), device=context.device)


def _expected_losses(case: CaseSpec, context: Context) -> tuple[list[float] | None, str]:
    """The losses to hold to, and where they come from: the golden file, else the reference, else nothing."""
    golden = case.options.get("golden")
    if golden is not None:
        path = (context.root / str(golden)).resolve()
        if not path.is_relative_to(context.root.resolve()):
            raise CaseError(f"golden {golden!r} lies outside of the repository")
        if path.is_file():
            return _read_golden(path, str(golden)), "golden"
        context.log(f"golden {golden!r} is not there")
    reference = case.options.get("reference")
    if reference is None:
        return None, "absent"
    step = _build(case, context, reference, role="reference")
    count = int(case.options.get("losses", DEFAULT_LOSSES))
    losses = [step.run()[1] for _ in range(count)]
    found = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(found) != count:
        raise CaseError(f"reference {reference!r} gives no finite loss at every step: {losses}")
    return found, "reference"


def _read_golden(path: Path, name: str) -> list[float]:
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CaseError(f"golden {name!r}: {error}") from None
    numbers = (
        isinstance(raw, list)
        and raw
        and all(
            isinstance(item, (int, float)) and not isinstance(item, bool) and math.isfinite(item)
            for item in raw
        )
    )
    if not numbers:
        raise CaseError(f"golden {name!r}: expected a JSON list of losses")
    return [float(item) for item in raw]


def _why_wrong(losses: Sequence[float | None], expected: list[float] | None, case: CaseSpec) -> str:
    """The first loss that differs, as a sentence; empty when all are right."""
    for i, loss in enumerate(losses):
        if loss is not None and not math.isfinite(loss):
            return f"the loss of step {i} is {loss}"
        if expected is None:
            continue
        if loss is None:
            return f"step {i} gives no loss, {expected[i]:g} was expected"
        rtol = DEFAULT_RTOL if case.rtol is None else case.rtol
        if not math.isclose(loss, expected[i], rel_tol=rtol, abs_tol=case.atol or 0.0):
            return f"the loss of step {i} is {loss:.8g}, {expected[i]:.8g} was expected (rtol {rtol:g})"
    return ""


def _sample(step: Step, context: Context, *, steps: int | None) -> list[StepTimes]:
    stopping: Stopping = MedianPrecision(min_samples=MIN_SAMPLES, budget_s=context.budget_s)
    if steps is not None:
        stopping = FixedCount(steps)
    times: list[StepTimes] = []
    totals: list[float] = []
    begun = perf_counter_ns()
    while not stopping.done(totals, (perf_counter_ns() - begun) * 1e-9):
        times.append(step.run()[0])
        totals.append(times[-1].total_s)
    return times


def _measurements(
    case: CaseSpec, step: Step, times: Sequence[StepTimes], peak_bytes: int
) -> list[Measurement]:
    """A metric named like a phase takes that phase; other times take the whole step; memory takes the peak."""
    made = []
    for metric in case.metrics:
        if kind_of(metric, tier="step") is Kind.MEMORY:
            made.append(measured(metric, [float(peak_bytes)]))
        elif metric.name in step.names:
            made.append(measured(metric, [item.phases_s[metric.name] for item in times]))
        else:
            made.append(measured(metric, [item.total_s for item in times]))
    return made


def _finite_losses(correctness: dict[str, Any]) -> dict[str, Any]:
    """The wire has no NaN: a loss that is none is kept as text."""
    losses = [loss if loss is None or math.isfinite(loss) else str(loss) for loss in correctness["losses"]]
    return {**correctness, "losses": losses}


class _HostMarks:
    """Moments on the host's clock. Host code has finished when it returns, so there is nothing to wait for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: list[int] = []

    def wait(self) -> None:
        return

    def set(self) -> None:
        self._times.append(self._clock())

    def stretches_s(self) -> list[float]:
        return [(after - before) * 1e-9 for before, after in itertools.pairwise(self._times)]


class _DeviceMarks:
    """Events on the current stream, read after `wait`."""

    def __init__(self) -> None:
        import torch

        self._new: Callable[..., Any] = torch.cuda.Event
        self._events: list[Any] = []
        self.wait: Callable[[], None] = torch.cuda.synchronize

    def set(self) -> None:
        self._events.append(self._new(enable_timing=True))
        self._events[-1].record()

    def stretches_s(self) -> list[float]:
        pairs = itertools.pairwise(self._events)
        return [float(before.elapsed_time(after)) * 1e-3 for before, after in pairs]
