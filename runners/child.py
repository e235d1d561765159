"""The measuring child: runs cases in the order given and sends one result for each.

Runs under the project's interpreter, started by `isolate.py` through `bootstrap.py`. It announces each case
before it starts, so that a crash costs that case alone.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .channel import Sender, run_to_wire
from .context import Context
from .integrity import Seal
from .loading import CaseError
from .result import CaseSpec, MetricSpec, RunResult, Status

# tier -> module of the harness with `run_case(case, context) -> RunResult`; imported when first needed.
TIER_MODULES = {"micro": "micro", "step": "step", "static": "static", "replay": "replay"}

_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "unable to allocate",
    "std::bad_alloc",
    "can't start new thread",
)


def main(arguments: list[str]) -> int:
    """Arguments: the descriptors of the request and of the result channel. Exit status 0 when all was sent."""
    request_fd, channel_fd = (int(text) for text in arguments)
    with os.fdopen(request_fd) as stream:
        request = json.load(stream)
    os.set_inheritable(channel_fd, False)  # noqa: FBT003  (positional-only)
    sender = Sender(channel_fd, bytes.fromhex(request.pop("key")))
    cases = [(position, _case(raw)) for position, raw in request["cases"]]
    for tier in {case.tier for _, case in cases} & set(TIER_MODULES):
        # The harness, with all that it calls, is bound before any candidate code is imported.
        importlib.import_module(f".{TIER_MODULES[tier]}", __package__)
    micro = [case for _, case in cases if case.tier == "micro"]
    if request["device"] == "cuda" and request["project"]:
        cuda_timing = importlib.import_module(".cuda_timing", __package__)
        if any("work" in case.options for case in micro):
            sender.send({"ceilings": importlib.import_module(".ceilings", __package__).measured().as_wire()})
        if micro:
            cuda_timing.prime()
    seal = Seal(str(__package__))
    if request["project"]:
        # Only now: a module of the project must not stand in for one that the harness needs.
        sys.path.insert(0, request["root"])
    send, collect, write, marker = sender.send, gc.collect, os.write, request.pop("marker")
    if request["sentinel"]:
        send({"sentinel": "before", "values": _sentinel(request)})
    for position, case in cases:
        # Output and results travel on two pipes; the marker tells which output belongs to this case.
        write(1, f"\n{marker}{position}\n".encode())
        send({"begin": position})
        run = run_guarded(case, _context(case, request), limit=_memory_limit(case, request["device"]))
        if broken := seal.broken():
            run = dataclasses.replace(run, status=Status.INCORRECT, reason=broken, measurements=[])
        send({"end": position, "run": run_to_wire(run)})
        collect()
        if run.status in (Status.ERROR, Status.OOM) or broken:
            # What failed may have left the process unfit; the parent goes on with a fresh one.
            return 0
    if request["sentinel"] and request["cases"]:
        send({"sentinel": "after", "values": _sentinel(request)})
    return 0


def run_guarded(case: CaseSpec, context: Context, *, limit: int | None) -> RunResult:
    """Run one case; whatever it raises becomes a status with its reason."""
    started_at, start = datetime.now(UTC).isoformat(), time.monotonic()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    try:
        if context.device == "cuda" and case.tier in ("micro", "step"):
            importlib.import_module(".memory", __package__).limit_device_memory(case.memory_limit_bytes)
        elif limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        run_case: Callable[[CaseSpec, Context], RunResult] = _tier(case.tier)
        run = run_case(case, context)
    except CaseError as error:
        run = _failed(case, Status.ERROR, str(error))
    except (Exception, SystemExit) as error:  # candidate code may raise anything
        run = _failed(case, *_classify(error, limit))
        _print_traceback(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        sys.stdout.flush()
        sys.stderr.flush()
    return dataclasses.replace(run, started_at=started_at, duration_s=time.monotonic() - start)


def _tier(name: str) -> Callable[[CaseSpec, Context], RunResult]:
    if name not in TIER_MODULES:
        raise CaseError(f"tier {name!r} is unknown (known: {', '.join(TIER_MODULES)})")
    module = importlib.import_module(f".{TIER_MODULES[name]}", __package__)
    function: Callable[[CaseSpec, Context], RunResult] = module.run_case
    return function


def is_out_of_memory(error: BaseException) -> bool:
    """MemoryError, torch's OutOfMemoryError and the RuntimeErrors by which allocators say the same."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, (RuntimeError, OSError)) and any(sign in text for sign in _OUT_OF_MEMORY)


def _classify(error: BaseException, limit: int | None) -> tuple[Status, str]:
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if is_out_of_memory(error):
        within = f" (memory limit {limit / 2**20:.0f} MiB)" if limit is not None else ""
        return Status.OOM, f"out of memory{within}: {said}"
    return Status.ERROR, said


def _print_traceback(error: BaseException) -> None:
    try:
        traceback.print_exception(error)
    except MemoryError:
        print("(no memory left to print the traceback)", file=sys.stderr)


def _failed(case: CaseSpec, status: Status, reason: str) -> RunResult:
    return RunResult(case.benchmark, case.params, case.tier, status, reason[:2000])


def _context(case: CaseSpec, request: dict[str, Any]) -> Context:
    return Context(
        root=Path(request["root"]),
        python=request["python"],
        device=request["device"],
        seed=request["seed"],
        deadline=time.monotonic() + case.timeout_s,
        budget_s=request["budget_s"],
        environment=request["environment"],
        cpus=None if request["cpus"] is None else tuple(request["cpus"]),
    )


def _memory_limit(case: CaseSpec, device: str) -> int | None:
    """On CUDA the limit is the device's, set by the tier; replay limits the server that it starts."""
    return None if device == "cuda" or case.tier == "replay" else case.memory_limit_bytes


def _case(raw: dict[str, Any]) -> CaseSpec:
    return CaseSpec(
        **{
            **raw,
            "metrics": tuple(MetricSpec(**metric) for metric in raw["metrics"]),
            "command": None if raw["command"] is None else tuple(raw["command"]),
        }
    )


def _sentinel(request: dict[str, Any]) -> dict[str, float]:
    module = importlib.import_module(".sentinel", __package__)
    values: dict[str, float] = module.measure(request["device"])
    return values
