"""Starting the supervisor from another process, and outliving it.

Two processes watch each other: when the starter is killed the supervisor stops everything; when the supervisor
is killed its descendants become the starter's, which ends them. Killing both at once leaves the death signals
that every service has asked the kernel for.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from perfdb.local.command import as_account
from perfdb.local.orphans import await_descendants, become_subreaper, kill_descendants
from perfdb.local.state import StateFolder
from perfdb.local.status import StackStatus, running_status

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 15.0
_LEFT_BEHIND_WAIT_S = 5.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StackStartError(Exception):
    """The stack did not come up; the supervisor has printed why."""


def run_in_foreground(*, host: str, port: int | None) -> int:
    """Start a supervisor and wait for its end, handing signals on; returns its exit status.

    Must be called in the main thread, as `running_stack`: the supervisor stops when that thread ends.
    """
    become_subreaper()
    process = _start(host=host, port=port)

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(signal.SIGTERM)

    for number in _FORWARDED:
        signal.signal(number, forward)
    status = process.wait()
    _end_what_is_left()
    return status if status >= 0 else 128 - status


@contextmanager
def running_stack(
    state: StateFolder, *, host: str = "127.0.0.1", port: int | None = None
) -> Iterator[StackStatus]:
    """The stack of `state`: the one that runs already, or one that runs for the length of the block.

    The environment must name the same state folder, as it does for the settings.

    Raises:
        StackStartError: it did not come up.
    """
    running = running_status(state)
    if running is not None:
        yield _await_ready(state, process=None)
        return
    become_subreaper()
    process = _start(host=host, port=port)
    try:
        yield _await_ready(state, process=process)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        if process.returncode < 0:
            _end_what_is_left()


def _await_ready(state: StateFolder, *, process: "subprocess.Popen[bytes] | None") -> StackStatus:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        status = running_status(state)
        if status is not None and status.phase == "ready":
            return status
        if status is None and process is None:
            raise StackStartError("the stack that was running has stopped")
        if process is not None and process.poll() is not None:
            raise StackStartError(f"the supervisor ended with status {process.returncode}")
        time.sleep(0.1)
    raise StackStartError(f"not ready after {START_TIMEOUT_S:g} s; see the logs in {state.logs}")


def _start(*, host: str, port: int | None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "perfdb.local", "--host", host]
    if port is not None:
        command += ["--port", str(port)]
    return subprocess.Popen(
        as_account(command, account=None, death_signal=signal.SIGTERM),
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[2],
        # A Ctrl-C on the terminal must reach the supervisor once, through us, and its children never.
        start_new_session=True,
    )


def _end_what_is_left() -> None:
    await_descendants(timeout_s=_LEFT_BEHIND_WAIT_S)
    kill_descendants()
