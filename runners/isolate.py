"""Run cases in a fresh child process, and account for every one of them whatever the child does."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .channel import ChannelError, Receiver, run_from_wire
from .process import start, stop
from .pump import Tail, pump
from .result import CaseSpec, RunResult, Status

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
# Interpreter, harness and sentinel (torch and a CUDA context on a cold file cache).
STARTUP_S = 90.0
# A case ends itself at its deadline where it can; the kill comes a little later.
GRACE_S = 1.0
# Between cases: garbage collection, the closing sentinel, interpreter exit.
SHUTDOWN_S = 60.0


@dataclass(frozen=True)
class Surroundings:
    """What all cases of a launch share. Other words as in Context.

    python: interpreter of the child. own_code: the child runs the harness's code only (a replay's client), so
    the project's root stays off its import path and it stays off the cores that its server is pinned to.
    """

    root: Path
    python: str
    project_python: str
    device: str
    seed: int
    budget_s: float
    environment: Mapping[str, str]
    cpus: tuple[int, ...] | None = None
    sentinel: bool = False
    own_code: bool = False


@dataclass
class Collected:
    """What came back so far, by position of the case in the launch request."""

    runs: dict[int, RunResult] = field(default_factory=dict)
    sentinel: dict[str, dict[str, float]] = field(default_factory=dict)
    ceilings: dict[str, Any] | None = None


def run_cases(cases: Sequence[tuple[int, CaseSpec]], surroundings: Surroundings) -> Collected:
    """Measure `cases` in this order, in as few children as crashes allow.

    Every position is in the answer's `runs`, with the last lines of what its case printed.
    """
    collected = Collected()
    remaining = list(cases)
    while remaining:
        child = _Child(remaining, surroundings, collected)
        child.run()
        if child.begun is None:
            reason = child.ending()
            for position, case in remaining:
                collected.runs[position] = _lost(
                    case, Status.ERROR, f"the measuring process {reason}", child.log.text()
                )
        remaining = [(position, case) for position, case in remaining if position not in collected.runs]
    if surroundings.sentinel and collected.runs and "after" not in collected.sentinel:
        # The last child ended early. Its sentinel is measured without it.
        collected.sentinel["after"] = measure_sentinel(surroundings)
    return collected


def measure_sentinel(surroundings: Surroundings) -> dict[str, float]:
    """The sentinel in a child of its own; empty when that child does not come up."""
    collected = Collected()
    _Child([], dataclasses.replace(surroundings, sentinel=True), collected).run()
    return collected.sentinel.get("before", {})


class _Child:
    """One child process and the state of the conversation with it."""

    def __init__(
        self, cases: Sequence[tuple[int, CaseSpec]], surroundings: Surroundings, collected: Collected
    ) -> None:
        self._cases = dict(cases)
        self._surroundings = surroundings
        self._collected = collected
        self._key = secrets.token_bytes(32)
        self._marker = f"[case {secrets.token_hex(8)}] "
        self._receiver = Receiver(self._key)
        self._deadline = time.monotonic() + STARTUP_S
        self._current: int | None = None
        self._started = 0.0
        self._forged = ""
        self._late = False
        self._oom_kills = _oom_kill_count()
        self._returncode = 0
        self.begun: int | None = None
        self.log = Tail()

    def run(self) -> None:
        channel, channel_end = os.pipe()
        output, output_end = os.pipe()
        try:
            with self._request() as request:
                process = self._start(request.fileno(), channel_end, output_end)
                os.close(channel_end)
                os.close(output_end)
                # Output first: what a case printed before its result then lies in its own log.
                sinks = {output: self.log.add, channel: self._receive}
                try:
                    self._late = not pump(process, sinks, deadline=lambda: self._deadline)
                finally:
                    self._returncode = stop(process)
        finally:
            os.close(channel)
            os.close(output)
        if self._current is not None:
            self._lose_current()

    def ending(self) -> str:
        """How the child ended, as the rest of a sentence about it."""
        if self._forged:
            return f"was stopped: {self._forged}"
        if self._late:
            return "did not answer in time"
        if self._returncode < 0:
            return f"was killed by {signal.Signals(-self._returncode).name}"
        return f"ended with exit status {self._returncode}"

    def _request(self) -> IO[str]:
        surroundings = self._surroundings
        request = {
            "key": self._key.hex(),
            "marker": self._marker,
            "root": str(surroundings.root),
            "project": not surroundings.own_code,
            "python": surroundings.project_python,
            "device": surroundings.device,
            "seed": surroundings.seed,
            "budget_s": surroundings.budget_s,
            "environment": dict(surroundings.environment),
            "cpus": surroundings.cpus,
            "sentinel": surroundings.sentinel,
            "cases": [[position, dataclasses.asdict(case)] for position, case in self._cases.items()],
        }
        file = tempfile.TemporaryFile("w+")  # noqa: SIM115  (the caller closes it)
        json.dump(request, file)
        file.flush()
        file.seek(0)
        return file

    def _start(self, request_fd: int, channel_fd: int, output_fd: int) -> subprocess.Popen[bytes]:
        surroundings = self._surroundings
        return start(
            [surroundings.python, "-P", str(BOOTSTRAP), "child", str(request_fd), str(channel_fd)],
            root=surroundings.root,
            environment=surroundings.environment,
            cpus=None if surroundings.own_code else surroundings.cpus,
            stdout=output_fd,
            stderr=output_fd,
            pass_fds=(request_fd, channel_fd),
        )

    def _receive(self, data: bytes) -> None:
        if self._forged:
            return
        try:
            for message in self._receiver.feed(data):
                self._handle(message)
        except (ChannelError, KeyError, ValueError) as error:
            self._forged = str(error)
            self._deadline = 0.0

    def _handle(self, message: dict[str, Any]) -> None:
        now = time.monotonic()
        if "sentinel" in message:
            if message["sentinel"] == "after":
                self._collected.sentinel["after"] = message["values"]
            else:
                self._collected.sentinel.setdefault("before", message["values"])
        elif "ceilings" in message:
            self._collected.ceilings = message["ceilings"]
        elif "begin" in message:
            self._current = self.begun = message["begin"]
            self._started = now
            self._deadline = now + self._cases[message["begin"]].timeout_s + GRACE_S
        else:
            position = message["end"]
            if position != self._current:
                raise ChannelError(f"a result for case {position} while case {self._current} was running")
            run = run_from_wire(message["run"])
            self._collected.runs[position] = dataclasses.replace(run, log=self._case_log(position))
            self._current = None
            self._deadline = now + SHUTDOWN_S

    def _case_log(self, position: int) -> str:
        """What was printed since the marker of this case (all that is kept, where the marker was cut off)."""
        return self.log.text().rpartition(f"\n{self._marker}{position}\n")[2]

    def _lose_current(self) -> None:
        """The child ended while a case was running: that case gets its status here."""
        assert self._current is not None
        case = self._cases[self._current]
        status, reason = Status.ERROR, f"the process {self.ending()}"
        if self._late and not self._forged:
            status, reason = Status.TIMEOUT, f"no result within {case.timeout_s:g} s"
        elif self._returncode == -signal.SIGKILL and _oom_kill_count() > self._oom_kills:
            status, reason = Status.OOM, "the kernel killed the process because the machine ran out of memory"
        run = _lost(case, status, reason, self._case_log(self._current))
        duration = time.monotonic() - self._started
        self._collected.runs[self._current] = dataclasses.replace(run, duration_s=duration)


def _lost(case: CaseSpec, status: Status, reason: str, log: str) -> RunResult:
    return RunResult(case.benchmark, case.params, case.tier, status, reason, log)


def _oom_kill_count() -> int:
    """Processes that the kernel has killed for memory since boot (0 where it does not count them)."""
    try:
        lines: Iterator[str] = iter(Path("/proc/vmstat").read_text().splitlines())
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
