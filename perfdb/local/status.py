"""What a running stack says of itself: a lock that says whether it runs, a file that says how.

The lock is the truth, since the kernel drops it with the process that holds it; a file that a killed
supervisor left behind is then known to be stale.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from perfdb.local.state import StateFolder


@dataclass(frozen=True)
class ServiceStatus:
    """One service; `pid` is None while it waits for its next start."""

    name: str
    pid: int | None
    restarts: int


@dataclass(frozen=True)
class StackStatus:
    """`phase` is starting, ready or stopping; `address` is where people go."""

    pid: int
    phase: str
    address: str
    services: tuple[ServiceStatus, ...] = ()


class AlreadyRunningError(Exception):
    """Another supervisor holds the lock of this state folder."""


class Lock:
    """Held from construction until the process ends."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            AlreadyRunningError: someone else holds it.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise AlreadyRunningError(str(path)) from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode("ascii"))


def running_status(state: StateFolder) -> StackStatus | None:
    """The running stack of `state`, or None when none runs."""
    try:
        descriptor = os.open(state.lock_file, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = int(os.read(descriptor, 32) or b"0")
    else:
        return None
    finally:
        os.close(descriptor)
    try:
        status = _read(state.status_file)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        status = None
    if status is None or status.pid != pid:  # it has only just taken the lock
        return StackStatus(pid=pid, phase="starting", address="")
    return status


def write_status(state: StateFolder, status: StackStatus) -> None:
    """Replace the status file in one step."""
    partial = state.status_file.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(status)), encoding="utf-8")
    partial.replace(state.status_file)


def _read(path: Path) -> StackStatus:
    fields = json.loads(path.read_text(encoding="utf-8"))
    services = tuple(ServiceStatus(**service) for service in fields.pop("services"))
    return StackStatus(**fields, services=services)
