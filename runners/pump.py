"""Read a process's pipes until it ends or its time is over, keeping the last of what it printed."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping

LOG_BYTES = 16 * 1024
_CHUNK = 1 << 16
# Where the kernel has no pidfd, the end of a process is noticed by looking this often.
_POLL_S = 0.005


class Tail:
    """The last `limit` bytes of a stream, cut at a line where that is possible."""

    def __init__(self, limit: int = LOG_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()
        self._cut = False

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]
            self._cut = True

    def text(self) -> str:
        data = bytes(self._data[-self._limit :])
        if self._cut or len(self._data) > self._limit:
            _, newline, rest = data.partition(b"\n")
            data = b"[...]\n" + (rest if newline else data)
        # NUL cannot be stored in a text column of PostgreSQL.
        return data.decode(errors="replace").replace("\x00", "\ufffd")


def pump(
    process: subprocess.Popen[bytes],
    sinks: Mapping[int, Callable[[bytes], None]],
    *,
    deadline: Callable[[], float],
) -> bool:
    """Feed what arrives on each descriptor to its sink until the process has exited and is drained.

    `deadline()` is asked before every wait (monotonic seconds), so a sink may move it. False when it passed
    first: the process then still runs, and the caller ends it. Sinks are called in the order of `sinks` when
    several descriptors are readable at once.
    """
    for descriptor in sinks:
        os.set_blocking(descriptor, False)
    open_descriptors = list(sinks)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for descriptor in open_descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        longest_wait = _watch_exit(process, selector, stack)
        while True:
            exited = process.poll() is not None
            for descriptor in list(open_descriptors):
                if not _drain(descriptor, sinks[descriptor]):
                    selector.unregister(descriptor)
                    open_descriptors.remove(descriptor)
            if exited:
                return True
            left = deadline() - time.monotonic()
            if left <= 0:
                return False
            selector.select(min(left, longest_wait))


def _watch_exit(
    process: subprocess.Popen[bytes], selector: selectors.BaseSelector, stack: contextlib.ExitStack
) -> float:
    """Make the process's end wake the selector. Returns the longest wait that still notices it."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return _POLL_S
    stack.callback(os.close, pidfd)
    selector.register(pidfd, selectors.EVENT_READ)
    return 1.0


def _drain(descriptor: int, sink: Callable[[bytes], None]) -> bool:
    """Read all there is; False at the end of the stream."""
    while True:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        sink(data)
