"""The fingerprint: what separates series, what marks a boundary inside one, and what only informs."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .nvml import Gpu, driver_version
from .result import Environment

_CPU = Path("/sys/devices/system/cpu")
# Allocator settings and preloads change what is measured without changing the code.
_ALLOCATOR_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "LD_PRELOAD",
)
# The image that a pool is built from; whoever builds it names it.
IMAGE_VARIABLE = "PERFDB_IMAGE"


class InterpreterError(RuntimeError):
    """The project's interpreter does not start, or is too old for the harness."""


def fingerprint(
    *,
    device: str,
    gpu: Gpu | None,
    cpus: Sequence[int] | None,
    python: str,
    versions: Mapping[str, str | None],
    environment: Mapping[str, str],
) -> Environment:
    """The environment of a launch on `device` ("cpu" or "cuda") with its processes' `environment`."""
    identity = gpu.identity() if gpu is not None and device == "cuda" else None
    klass: dict[str, Any] = {
        "device": device,
        "cpu_model": cpu_model(),
        "cpu_cores": len(cpus) if cpus is not None else len(os.sched_getaffinity(0)),
        "cpu_governor": _text(_CPU / "cpu0/cpufreq/scaling_governor"),
        "cpu_boost": _text(_CPU / "cpufreq/boost") or _text(_CPU / "intel_pstate/no_turbo"),
    }
    boundary: dict[str, Any] = {
        "kernel": platform.release(),
        "image": os.environ.get(IMAGE_VARIABLE) or _os_name(),
        "allocator": {name: environment[name] for name in _ALLOCATOR_VARIABLES if name in environment},
        **versions,
    }
    info: dict[str, Any] = {
        "host": socket.gethostname(),
        "python": python,
        "cpus": None if cpus is None else list(cpus),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "microcode": _cpuinfo("microcode"),
    }
    if identity is not None:
        klass |= {
            "gpu_model": identity["name"],
            "gpu_memory_bytes": identity["memory_bytes"],
            "mig": identity["mig"],
            "power_limit_w": identity["power_limit_w"],
            "clock_policy": identity["clock_policy"],
        }
        boundary |= {"driver": driver_version(), "vbios": identity["vbios"], "ecc": identity["ecc"]}
        info |= {"gpu_uuid": identity["uuid"], "max_sm_mhz": identity["max_sm_mhz"]}
    return Environment(klass=klass, boundary=boundary, info=info)


def project_versions(
    python: str, *, bootstrap: Path, root: Path, environment: Mapping[str, str], timeout_s: float = 30.0
) -> dict[str, str | None]:
    """`versions.collect()` under the project's interpreter.

    Raises InterpreterError when it does not start, is older than Python 3.11, or does not answer in time.
    """
    argv = [python, "-P", str(bootstrap), "versions"]
    try:
        done = subprocess.run(
            argv, cwd=root, env=dict(environment), capture_output=True, timeout=timeout_s, check=False
        )
    except OSError as error:
        raise InterpreterError(f"interpreter {python!r} does not start: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InterpreterError(f"interpreter {python!r} did not answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no output"]
        raise InterpreterError(
            f"interpreter {python!r} cannot load the harness (Python 3.11 or newer is needed): {lines[-1]}"
        )
    answer: dict[str, str | None] = json.loads(done.stdout)
    return answer


def cpu_model() -> str:
    """The processor's own name, without the machine it is in."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str | None:
    for line in (_text(Path("/proc/cpuinfo")) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
