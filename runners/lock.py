"""One measurement at a time per GPU and per core: advisory file locks, shared by every user of the host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

FOLDER_VARIABLE = "PERFDB_LOCK_DIR"
WAIT_VARIABLE = "PERFDB_LOCK_WAIT_S"
DEFAULT_WAIT_S = 900.0
_POLL_S = 0.05


class Busy(RuntimeError):
    """Another measurement holds the GPU or the cores, and went on for longer than we wait."""


def lock_folder() -> Path:
    """`PERFDB_LOCK_DIR`, or a folder that every user of this host can write to."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "perfdb-locks")


def names(*, gpu: str | None, cpus: Sequence[int] | None) -> list[str]:
    """Locks of a launch: its GPU, and its cores. Without a GPU and a pin, every core that it may run on."""
    cores = sorted(cpus if cpus is not None else ([] if gpu else os.sched_getaffinity(0)))
    return ([f"gpu-{gpu}"] if gpu else []) + [f"cpu-{core}" for core in cores]


@contextlib.contextmanager
def held(wanted: Sequence[str], *, wait_s: float | None = None) -> Iterator[None]:
    """Hold all locks in `wanted`, taken in one fixed order so that two launches cannot block each other.

    Raises Busy, naming the holder, when they are not free within `wait_s` (default `PERFDB_LOCK_WAIT_S` or
    900 s). The kernel releases them when the process ends, however it ends.
    """
    limit_s = float(os.environ.get(WAIT_VARIABLE) or DEFAULT_WAIT_S) if wait_s is None else wait_s
    deadline = time.monotonic() + limit_s
    folder = lock_folder()
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            folder.chmod(0o1777)
    with contextlib.ExitStack() as stack:
        for name in sorted(wanted):
            _take(stack.enter_context(_open(folder / f"{name}.lock")), name, deadline=deadline)
        yield


def _open(path: Path) -> IO[str]:
    # Without O_CREAT first: a sticky folder may forbid opening another user's file with it. Never through a
    # link that another user laid there, since the file is written to.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
    return os.fdopen(descriptor, "r+")


def _take(file: IO[str], name: str, *, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.seek(0)
                holder = file.read(64).strip() or "unknown"
                raise Busy(f"{name} is measured on by another process (pid {holder})") from None
            time.sleep(_POLL_S)
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
