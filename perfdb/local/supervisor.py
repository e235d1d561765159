"""Start children, restart those that die, stop all of them.

A single thread on purpose: the kernel's death signal is tied to the thread that forks, and `waitpid(-1)` has
to reap what children leave behind (the supervisor is their subreaper) without racing anybody.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from perfdb.local.command import as_account
from perfdb.local.orphans import kill_descendants
from perfdb.local.service import Service

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_STEADY_AFTER_S = 60.0
_LOG_ROTATES_AT_BYTES = 16 * 1024 * 1024
_INHERITED_FD = 3
_KILLED_WITHIN_S = 1.0


class StopRequested(Exception):
    """SIGTERM or SIGINT arrived."""


class ServiceFailedError(Exception):
    """A child that has to be there did not work; the message names it and its log."""


@dataclass
class Child:
    """The life of one service. `pid` is None between two lives, which end at `due_s` (monotonic)."""

    service: Service
    log: Path
    pid: int | None = None
    started_s: float = 0.0
    due_s: float = 0.0
    delay_s: float = _FIRST_DELAY_S / 2
    restarts: int = 0


class Supervisor:
    """Owns its children from `start` to `stop`; `on_change` is called whenever one starts or dies."""

    def __init__(self, *, logs: Path, on_change: Callable[[list[Child]], None]) -> None:
        self._logs = logs
        self._on_change = on_change
        self._children: list[Child] = []
        self._once: dict[int, int | None] = {}
        self._stop_requested = False
        self._wakeup, self._wakeup_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._on_signal)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    @property
    def children(self) -> list[Child]:
        return list(self._children)

    def start(self, service: Service) -> None:
        """Start `service` and keep it running until `stop`."""
        child = Child(service=service, log=self._logs / f"{service.name}.log")
        self._children.append(child)
        self._spawn(child)
        self._on_change(self.children)

    def run_once(self, service: Service, *, to_terminal: bool = False) -> None:
        """Run `service` to its end while looking after the others; its output goes to its log by default.

        Raises:
            ServiceFailedError: it ended with another status than 0.
            StopRequested: a stop signal came first.
        """
        path = self._logs / f"{service.name}.log"
        pid = _spawn(service, log=None if to_terminal else path)
        self._once[pid] = None
        while self._once[pid] is None:
            self.step(timeout_s=1.0)
        status = self._once.pop(pid)
        if status != 0:
            where = "" if to_terminal else f":\n{tail(path)}"
            raise ServiceFailedError(f"{service.name} ended with status {status}{where}")

    def step(self, *, timeout_s: float) -> None:
        """Sleep until something happens, at most `timeout_s`; reap the dead and restart those that are due.

        Raises:
            StopRequested: a stop signal has come.
        """
        now_s = time.monotonic()
        waits = [child.due_s - now_s for child in self._children if child.pid is None]
        self._sleep(max(0.0, min([timeout_s, *waits])))
        self._reap()
        if self._stop_requested:
            raise StopRequested
        for child in self._children:
            if child.pid is None and child.due_s <= time.monotonic():
                child.restarts += 1
                self._spawn(child)
                self._on_change(self.children)

    def stop(self, names: Collection[str]) -> None:
        """Stop the named children and whatever they left running, whether or not a stop was requested.

        Takes as long as the slowest child's steps; all are signalled at the same time.
        """
        leaving = [child for child in self._children if child.service.name in names]
        self._children = [child for child in self._children if child.service.name not in names]
        self._walk_stop_steps(leaving)
        for child in leaving:
            if child.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        kill_descendants(spare={child.pid for child in self._children if child.pid is not None})
        deadline_s = time.monotonic() + _KILLED_WITHIN_S
        while any(child.pid is not None for child in leaving) and time.monotonic() < deadline_s:
            self._sleep(0.05)
            self._reap(leaving)

    def _walk_stop_steps(self, leaving: list[Child]) -> None:
        begun_s = time.monotonic()
        # Each child walks its own list of (signal, when).
        agenda: list[tuple[float, Child, signal.Signals | None]] = []
        for child in leaving:
            at_s = begun_s
            for step in child.service.stop_steps:
                agenda.append((at_s, child, step.signal))
                at_s += step.wait_s
            agenda.append((at_s, child, None))
        for at_s, child, number in sorted(agenda, key=lambda entry: entry[0]):
            while child.pid is not None and time.monotonic() < at_s:
                self._sleep(at_s - time.monotonic())
                self._reap(leaving)
            if child.pid is not None and number is not None:
                os.kill(child.pid, number)

    def _spawn(self, child: Child) -> None:
        child.pid = _spawn(child.service, log=child.log)
        child.started_s = time.monotonic()

    def _sleep(self, timeout_s: float) -> None:
        if select.select([self._wakeup], [], [], max(0.0, timeout_s))[0]:
            os.read(self._wakeup, 4096)

    def _reap(self, leaving: Iterable[Child] = ()) -> None:
        by_pid = {child.pid: child for child in (*self._children, *leaving) if child.pid is not None}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid in self._once:
                self._once[pid] = code
            elif pid in by_pid:
                self._schedule(by_pid[pid], code)

    def _schedule(self, child: Child, code: int) -> None:
        now_s = time.monotonic()
        child.pid = None
        steady = now_s - child.started_s > _STEADY_AFTER_S
        child.delay_s = _FIRST_DELAY_S if steady else min(_LONGEST_DELAY_S, child.delay_s * 2)
        child.due_s = now_s + child.delay_s
        with child.log.open("a", encoding="utf-8") as log:
            log.write(f"supervisor: {child.service.name} ended with status {code}\n")
        self._on_change(self.children)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._stop_requested = True


def _spawn(service: Service, *, log: Path | None) -> int:
    """Start `service` in a session of its own, its output appended to `log`; returns its process id."""
    command = as_account(
        service.command, account=service.account, death_signal=service.death_signal, cpus=service.cpus
    )
    actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    if log is not None:
        if log.exists() and log.stat().st_size > _LOG_ROTATES_AT_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions += [(os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
    if service.socket_fd is not None:
        actions.append((os.POSIX_SPAWN_DUP2, service.socket_fd, _INHERITED_FD))
    return os.posix_spawn(
        command[0],
        command,
        {**os.environ, **service.environment},
        file_actions=actions,
        setsid=True,
        setsigdef=[signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
    )


def tail(path: Path, *, lines: int = 20) -> str:
    """The last lines of a log, for an error message."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])
