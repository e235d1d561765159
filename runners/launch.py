"""One launch from request to result: lock, environment, health, sentinel, and every case in its child."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from . import command
from .context import Context
from .environment import InterpreterError, fingerprint, project_versions
from .health import Monitor
from .isolate import BOOTSTRAP, Collected, Surroundings, measure_sentinel, run_cases
from .lock import Busy, held, names
from .nvml import Gpu, open_gpu
from .process import scrubbed_environment
from .result import (
    CaseSpec,
    Environment,
    Health,
    LaunchRequest,
    LaunchResult,
    RunResult,
    Status,
    WireError,
)

DEVICES = ("cpu", "cuda", "auto")


def measure(request: LaunchRequest) -> LaunchResult:
    """Run the launch. Raises WireError when the request itself is wrong; all else is in the result."""
    _check(request)
    started_at = _now()
    environment = _environment_for(request)
    python = request.python or sys.executable
    try:
        versions = project_versions(
            python, bootstrap=BOOTSTRAP, root=Path(request.root), environment=environment
        )
    except InterpreterError as error:
        return _unmeasured(request, started_at, Status.ERROR, str(error))
    gpu = None if request.device == "cpu" else open_gpu(request.gpu)
    device = _device(request.device, gpu, versions)
    if device == "cuda" and (missing := _why_no_cuda(gpu, versions)):
        return _unmeasured(request, started_at, Status.INVALID, missing)
    if device == "cpu":
        gpu = None
    place = fingerprint(
        device=device,
        gpu=gpu,
        cpus=request.cpus,
        python=python,
        versions=versions,
        environment=environment,
    )
    surroundings = Surroundings(
        root=Path(request.root),
        python=python,
        project_python=python,
        device=device,
        seed=request.seed,
        budget_s=request.budget_s,
        environment=environment,
        cpus=request.cpus,
        sentinel=request.sentinel,
    )
    try:
        with held(names(gpu=place.info.get("gpu_uuid"), cpus=request.cpus)), _off_the_cores(request.cpus):
            return _measure_held(request, surroundings, place, gpu, started_at)
    except Busy as error:
        return _unmeasured(request, started_at, Status.INVALID, f"the machine is busy: {error}", place)


def harness_version() -> str:
    """Version of the package and a digest of the harness's sources: a changed method marks a boundary."""
    try:
        version = metadata.version("perfdb")
    except metadata.PackageNotFoundError:
        version = "0"
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return f"{version}+{digest.hexdigest()[:12]}"


def _measure_held(
    request: LaunchRequest, surroundings: Surroundings, place: Environment, gpu: Gpu | None, started_at: str
) -> LaunchResult:
    monitor = Monitor(gpu)
    monitor.start()
    order = list(range(len(request.cases)))
    random.Random(request.seed).shuffle(order)
    try:
        collected = _run_all(request, order, surroundings)
    finally:
        during, violations = monitor.finish()
    health = Health(
        before=monitor.before,
        during=during,
        after=monitor.after,
        sentinel=collected.sentinel,
        violations=violations,
    )
    if collected.ceilings is not None:
        place = dataclasses.replace(place, info={**place.info, "ceilings": collected.ceilings})
    runs = [collected.runs[position] for position in range(len(request.cases))]
    if violations:
        runs = [_invalidated(run, violations) for run in runs]
    return LaunchResult(
        launch_id=request.launch_id,
        started_at=started_at,
        finished_at=_now(),
        environment=place,
        health=health,
        runs=runs,
        harness_version=harness_version(),
        order=order,
    )


def _run_all(request: LaunchRequest, order: list[int], surroundings: Surroundings) -> Collected:
    """Cases in `order`; neighbours that can share a child do."""
    collected = Collected()
    kinds = [_home(request.cases[position]) for position in order]
    wants_sentinel = surroundings.sentinel
    if wants_sentinel and "project" not in kinds:
        collected.sentinel["before"] = measure_sentinel(surroundings)
    for home, group in itertools.groupby(order, key=lambda position: _home(request.cases[position])):
        cases = [(position, request.cases[position]) for position in group]
        if home == "parent":
            for position, case in cases:
                collected.runs[position] = command.run_case(case, _context(case, surroundings))
            continue
        # A replay's client is the harness's own code: it runs in our interpreter, its server in the project's.
        child = dataclasses.replace(
            surroundings,
            python=sys.executable if home == "harness" else surroundings.python,
            own_code=home == "harness",
            sentinel=wants_sentinel and home == "project",
        )
        part = run_cases(cases, child)
        collected.runs |= part.runs
        collected.ceilings = collected.ceilings or part.ceilings
        for when, values in part.sentinel.items():
            if when == "after" or when not in collected.sentinel:
                collected.sentinel[when] = values
    if wants_sentinel and "project" not in kinds:
        collected.sentinel["after"] = measure_sentinel(surroundings)
    return collected


def _home(case: CaseSpec) -> str:
    """Where a case runs: "parent" (a command), "harness" (replay) or "project" (in-process tiers)."""
    if case.command is not None:
        return "parent"
    return "harness" if case.tier == "replay" else "project"


def _context(case: CaseSpec, surroundings: Surroundings) -> Context:
    return Context(
        root=surroundings.root,
        python=surroundings.project_python,
        device=surroundings.device,
        seed=surroundings.seed,
        deadline=time.monotonic() + case.timeout_s,
        budget_s=surroundings.budget_s,
        environment=surroundings.environment,
        cpus=surroundings.cpus,
    )


def _check(request: LaunchRequest) -> None:
    root = Path(request.root)
    if not root.is_absolute() or not root.is_dir():
        raise WireError(f"launch request: root {request.root!r} is no absolute path of a folder")
    if request.device not in DEVICES:
        raise WireError(f"launch request: device {request.device!r} (known: {', '.join(DEVICES)})")
    if request.cpus is not None and not set(request.cpus) <= os.sched_getaffinity(0):
        raise WireError(f"launch request: cores {list(request.cpus)} are not all available to this process")
    for case in request.cases:
        if case.timeout_s <= 0:
            raise WireError(f"launch request: {case.benchmark}: timeout_s must be positive")
        if case.tier in ("micro", "step") and (case.entry is None) == (case.command is None):
            raise WireError(f"launch request: {case.benchmark}: exactly one of entry and command is needed")


def _environment_for(request: LaunchRequest) -> dict[str, str]:
    threads = {} if request.cpus is None else {"OMP_NUM_THREADS": str(len(request.cpus))}
    environment = scrubbed_environment(threads | request.environment)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if visible != [""]:
        environment["CUDA_VISIBLE_DEVICES"] = visible[request.gpu] if request.gpu < len(visible) else ""
    else:
        environment["CUDA_VISIBLE_DEVICES"] = str(request.gpu)
    if request.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def _device(wanted: str, gpu: Gpu | None, versions: Mapping[str, str | None]) -> str:
    if wanted != "auto":
        return wanted
    return "cuda" if _why_no_cuda(gpu, versions) is None else "cpu"


def _why_no_cuda(gpu: Gpu | None, versions: Mapping[str, str | None]) -> str | None:
    if gpu is None:
        return "no CUDA device: NVML finds none (driver absent, or package nvidia-ml-py not installed)"
    if versions["torch"] is None:
        return "no CUDA device: the project's interpreter has no torch"
    if versions["cuda"] is None:
        return f"no CUDA device: torch {versions['torch']} of the project's interpreter is built without CUDA"
    return None


@contextlib.contextmanager
def _off_the_cores(cpus: tuple[int, ...] | None) -> Iterator[None]:
    """Keep this process and its sampling thread off the pinned cores, where there are others."""
    available = os.sched_getaffinity(0)
    others = available - set(cpus or ())
    if cpus and others:
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, available)


def _invalidated(run: RunResult, violations: list[str]) -> RunResult:
    reason = "; ".join(violations)
    if run.status is not Status.OK:
        reason += f" (otherwise {run.status.value}: {run.reason})"
    return dataclasses.replace(run, status=Status.INVALID, reason=reason)


def _unmeasured(
    request: LaunchRequest,
    started_at: str,
    status: Status,
    reason: str,
    place: Environment | None = None,
) -> LaunchResult:
    """Every case with the same status: nothing could be started."""
    if place is None:
        place = fingerprint(
            device="cpu",
            gpu=None,
            cpus=request.cpus,
            python=request.python or "",
            versions={},
            environment={},
        )
    runs = [
        RunResult(case.benchmark, case.params, case.tier, status, reason, started_at=started_at)
        for case in request.cases
    ]
    return LaunchResult(
        launch_id=request.launch_id,
        started_at=started_at,
        finished_at=_now(),
        environment=place,
        health=Health(violations=[reason] if status is Status.INVALID else []),
        runs=runs,
        harness_version=harness_version(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat()
