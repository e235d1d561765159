"""A benchmark that is a command: run it once in a fresh process group and read what it prints."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import struct
import time
from datetime import UTC, datetime
from typing import Any

from .context import Context
from .loading import CaseError
from .process import start, stop
from .pump import Tail, pump
from .quantities import Kind, kind_of, measured
from .result import CaseSpec, Measurement, RunResult, Status

MAX_OUTPUT_BYTES = 32 * 1024 * 1024
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_OUT_OF_MEMORY = (
    "MemoryError",
    "out of memory",
    "OutOfMemoryError",
    "Cannot allocate memory",
    "std::bad_alloc",
)


def run_case(case: CaseSpec, context: Context) -> RunResult:
    """Run `case.command`; `{python}` and `{name}` of a param are replaced inside each argument.

    The wall time counts from the moment the program is executed to its exit.
    """
    started_at, begun = datetime.now(UTC).isoformat(), time.monotonic()
    try:
        run = _run(case, context)
    except CaseError as error:
        run = RunResult(case.benchmark, case.params, case.tier, Status.ERROR, str(error))
    return dataclasses.replace(run, started_at=started_at, duration_s=time.monotonic() - begun)


def expand(case: CaseSpec, *, python: str) -> list[str]:
    """The argument list with each `{name}` filled in; other braces stay. Raises CaseError on an unknown name."""
    assert case.command is not None
    values = {"python": python} | {name: str(value) for name, value in case.params.items()}

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise CaseError(
                f"command: no placeholder {match[0]} (there are {{{'}, {'.join(values)}}}: python and the params)"
            )
        return values[match[1]]

    return [_PLACEHOLDER.sub(fill, argument) for argument in case.command]


class _Output:
    """Standard output up to the cap, and the last lines of both streams in the order they came."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.log = Tail()

    def add(self, data: bytes) -> None:
        self.log.add(data)
        if len(self.data) <= MAX_OUTPUT_BYTES:
            self.data += data

    def text(self) -> str:
        if len(self.data) > MAX_OUTPUT_BYTES:
            raise CaseError(f"the command printed more than {MAX_OUTPUT_BYTES // 2**20} MiB")
        return self.data.decode(errors="replace").replace("\x00", "\ufffd")


def _run(case: CaseSpec, context: Context) -> RunResult:
    argv = expand(case, python=context.python)
    output = _Output()
    stdout, stdout_end = os.pipe()
    stderr, stderr_end = os.pipe()
    clock, clock_end = os.pipe()
    try:
        process = start(
            argv,
            root=context.root,
            environment=context.environment,
            cpus=context.cpus,
            memory_limit_bytes=case.memory_limit_bytes,
            stdout=stdout_end,
            stderr=stderr_end,
            started_fd=clock_end,
        )
        for descriptor in (stdout_end, stderr_end, clock_end):
            os.close(descriptor)
        sinks = {stdout: output.add, stderr: output.log.add}
        try:
            in_time = pump(process, sinks, deadline=lambda: context.deadline)
            ended_ns = time.monotonic_ns()
        finally:
            code = stop(process)
        stamp = os.read(clock, 8)
    finally:
        for descriptor in (stdout, stderr, clock):
            os.close(descriptor)
    log = output.log.text()
    base = RunResult(case.benchmark, case.params, case.tier, Status.OK, log=log)
    if not in_time:
        return dataclasses.replace(
            base, status=Status.TIMEOUT, reason=f"the command did not end within {case.timeout_s:g} s"
        )
    if code != 0:
        status, reason = _failure(code, log)
        return dataclasses.replace(base, status=status, reason=reason)
    if len(stamp) != 8:
        raise CaseError("the command did not start")
    wall_s = (ended_ns - struct.unpack("=q", stamp)[0]) * 1e-9
    if case.output == "wall":
        return dataclasses.replace(base, measurements=_wall(case, wall_s))
    if case.output == "perfdb":
        return dataclasses.replace(base, measurements=read_output(output.text(), case))
    return dataclasses.replace(base, output=output.text())


def _failure(code: int, log: str) -> tuple[Status, str]:
    ending = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
    lines = [line for line in log.splitlines() if line.strip()]
    said = f": {lines[-1][:300]}" if lines else ""
    if any(sign in line for line in lines[-20:] for sign in _OUT_OF_MEMORY):
        return Status.OOM, f"out of memory: the command {ending}{said}"
    return Status.ERROR, f"the command {ending}{said}"


def _wall(case: CaseSpec, wall_s: float) -> list[Measurement]:
    measurements = []
    for metric in case.metrics:
        if kind_of(metric, tier=case.tier) is not Kind.TIME:
            raise CaseError(
                f'metric {metric.name!r}: a command with output = "wall" is measured in time, not {metric.unit!r}'
            )
        measurements.append(measured(metric, [wall_s]))
    return measurements


def read_output(text: str, case: CaseSpec) -> list[Measurement]:
    """Our JSON: `{"metrics": {"name": number | [numbers] | {"samples": [...], "unit": "ms"}}}`.

    It is the last line of standard output that starts with "{", or all of it. Numbers are in the unit that
    the metric declares. Raises CaseError naming what is missing or wrong.
    """
    found = _json_object(text).get("metrics")
    if not isinstance(found, dict):
        raise CaseError('the command\'s output has no "metrics" object')
    measurements = []
    for metric in case.metrics:
        if metric.name not in found:
            raise CaseError(
                f"the command's output has no metric {metric.name!r} (it has: {', '.join(found)})"
            )
        value = found[metric.name]
        if isinstance(value, dict):
            unit = value.get("unit", metric.unit)
            if unit != metric.unit:
                raise CaseError(f"metric {metric.name!r} is printed in {unit!r}, declared in {metric.unit!r}")
            value = value.get("samples")
        samples = value if isinstance(value, list) else [value]
        if not samples or not all(_is_number(sample) for sample in samples):
            raise CaseError(
                f"metric {metric.name!r}: expected finite numbers, the command printed {value!r:.200}"
            )
        measurements.append(Measurement(metric, [float(sample) for sample in samples]))
    return measurements


def _json_object(text: str) -> dict[str, Any]:
    candidates = [text, *(line for line in reversed(text.splitlines()) if line.startswith("{"))]
    for candidate in candidates:
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    raise CaseError("the command printed no JSON object on standard output")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
