"""Finding and ending whatever a dead child left running."""

import contextlib
import ctypes
import time
from collections.abc import Collection

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_PASSES = 5
_PASS_S = 0.2


def become_subreaper() -> None:
    """Have orphaned descendants of this process become its children rather than init's."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")


def kill_descendants(*, spare: Collection[int] = ()) -> None:
    """Kill every process below this one, except the children `spare` and what is below those.

    Needs `become_subreaper`: a process that escapes one pass by forking is a child of ours in the next.
    """
    for _ in range(_PASSES):
        doomed = [child for child in _living_children() if child.pid not in spare]
        if not doomed:
            return
        for child in doomed:
            for process in (child, *_descendants(child)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        psutil.wait_procs(doomed, timeout=_PASS_S)


def await_descendants(*, timeout_s: float) -> None:
    """Return when no process is left below this one, or after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s and (alive := _living_children()):
        psutil.wait_procs(alive, timeout=0.2)


def _living_children() -> list[psutil.Process]:
    living = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                living.append(child)
    return living


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
