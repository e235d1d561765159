"""The supervisor with small children: restarts, back-off, stubborn and detached ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.local.processes import Family, eventually


class Driven:
    """A running driver; its announcements are read as they come."""

    def __init__(self, logs: Path, services: dict[str, tuple[str, float]]) -> None:
        command = [sys.executable, "-m", "tests.local.driver", str(logs), json.dumps(services)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def announcement(self) -> dict[str, tuple[int | None, int]]:
        assert self.process.stdout is not None
        parsed: dict[str, tuple[int | None, int]] = json.loads(self.process.stdout.readline())
        return parsed

    def restarted(self, name: str, *, restarts: int) -> int:
        """Read on until `name` lives its life number `restarts`; returns the pid."""
        while True:
            pid, seen = self.announcement().get(name, (None, -1))
            if pid is not None and seen == restarts:
                return pid

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[[dict[str, tuple[str, float]]], Driven]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def run(services: dict[str, tuple[str, float]]) -> Driven:
            driven = Driven(tmp_path, services)
            stack.callback(driven.close)
            return driven

        yield run


def test_a_killed_child_comes_back(start: Start, tmp_path: Path) -> None:
    running = start({"steady": ("echo hello; exec sleep 1000", 1)})
    first = running.restarted("steady", restarts=0)
    eventually((tmp_path / "steady.log").exists)
    os.kill(first, signal.SIGKILL)
    second = running.restarted("steady", restarts=1)
    assert second != first
    assert psutil.pid_exists(second)
    assert "steady ended with status -9" in (tmp_path / "steady.log").read_text()


def test_a_child_that_keeps_dying_is_started_ever_more_slowly(start: Start, tmp_path: Path) -> None:
    running = start({"failing": (f"date +%s.%N >> {tmp_path}/starts; exit 7", 1)})
    running.restarted("failing", restarts=3)
    starts = eventually(lambda: _words(tmp_path / "starts")[3:]) and _words(tmp_path / "starts")
    gaps = [float(later) - float(earlier) for earlier, later in pairwise(starts)]
    assert gaps == sorted(gaps), "each wait is longer than the one before"


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_stopping_ends_a_child_that_ignores_signals_and_what_it_detached(
    start: Start, tmp_path: Path
) -> None:
    script = f"trap '' TERM; setsid sleep 1000 & echo $! > {tmp_path}/detached; while true; do sleep 1; done"
    running = start({"stubborn": (script, 0.5), "polite": ("exec sleep 1000", 5)})
    running.restarted("polite", restarts=0)
    eventually(lambda: _words(tmp_path / "detached"))
    family = Family.of(running.process.pid)
    assert len(family.members) >= 4
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(10) == 0
    assert family.alive() == []


def test_children_end_with_a_supervisor_that_is_killed(start: Start) -> None:
    running = start({"steady": ("exec sleep 1000", 1)})
    running.restarted("steady", restarts=0)
    family = Family.of(running.process.pid)
    running.process.kill()
    running.process.wait()
    eventually(lambda: family.alive() == [])
