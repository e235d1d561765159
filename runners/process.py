"""Start a confined process in a group of its own, and end it with everything that it started."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

# A killed process that waits for the disk or a driver may take its time.
GROUP_END_S = 2.0
KILLED_END_S = 30.0
CONFINE = Path(__file__).with_name("confine.py")

# Variables that reach the project's code; everything else (tokens above all) stays outside.
ALLOWED_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "CC",
        "CXX",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_CACHE_PATH",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "TRITON_CACHE_DIR",
        "TRITON_PTXAS_PATH",
        "TORCHINDUCTOR_CACHE_DIR",
        "XDG_CACHE_HOME",
        "HF_HOME",
        "NCCL_NVLS_ENABLE",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        "NVSHMEM_DISABLE_NVLS",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "MALLOC_ARENA_MAX",
        "MALLOC_CONF",
    }
)


def scrubbed_environment(
    added: Mapping[str, str], *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The allowed variables of `source` (default: this process), fixed ones, then those `added`."""
    source = os.environ if source is None else source
    kept = {name: value for name, value in source.items() if name in ALLOWED_VARIABLES}
    fixed = {
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return kept | fixed | dict(added)


def start(
    argv: Sequence[str],
    *,
    root: Path,
    environment: Mapping[str, str],
    cpus: Sequence[int] | None = None,
    memory_limit_bytes: int | None = None,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
    started_fd: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` (never a shell) in `root`, in a session and process group of its own.

    `started_fd`: a descriptor that receives `time.monotonic_ns()` (native 8 bytes) just before `argv` runs.
    It dies with the thread that starts it. What cannot be executed ends with exit status 126 or 127 and a
    line on standard error. End it with `stop`.
    """
    limits = json.dumps(
        {
            "cpus": list(cpus) if cpus else None,
            "memory_bytes": memory_limit_bytes,
            "started_fd": started_fd,
        }
    )
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(CONFINE), limits, *argv],
        cwd=root,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(*pass_fds, *([] if started_fd is None else [started_fd])),
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes], *, grace_s: float = 0.0) -> int:
    """End the process group: SIGTERM and `grace_s` to obey (0: at once), then SIGKILL. The exit status.

    -9 is also the answer for a killed process that the kernel does not let go within 30 s.
    """
    if grace_s > 0 and process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    # Also after the leader has gone: its group may hold processes that it left behind.
    _signal_group(process.pid, signal.SIGKILL)
    try:
        code = process.wait(timeout=KILLED_END_S)
    except subprocess.TimeoutExpired:
        # A driver that does not let go (an endless kernel, a lost GPU): the next launch's health will tell.
        return -signal.SIGKILL
    _await_group(process.pid)
    return code


def _await_group(group: int) -> None:
    """Until the killed group is gone, so that what is measured next has the machine to itself."""
    deadline = time.monotonic() + GROUP_END_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-group, os.WNOHANG)  # those that we adopted
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return
        time.sleep(0.005)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of processes that a benchmark leaves behind in sessions of their own."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans() -> None:
    """Kill every child of this process, until none is left. Only for a process whose children are all ours."""
    while children := _children(os.getpid()):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.name))
    return found
