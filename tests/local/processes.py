"""Watching processes from tests: who is alive, and waiting for something to become true."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

T = TypeVar("T")


def eventually(probe: Callable[[], T], *, within_s: float = 30.0) -> T:
    """The first true answer of `probe`; fails the test when none comes `within_s`."""
    deadline_s = time.monotonic() + within_s
    while not (answer := probe()):
        assert time.monotonic() < deadline_s, f"nothing came of {probe} within {within_s:g} s"
        time.sleep(0.05)
    return answer


@dataclass(frozen=True)
class Family:
    """A process and everything below it at one moment, told apart from later users of the same ids."""

    members: tuple[psutil.Process, ...]

    @classmethod
    def of(cls, pid: int) -> "Family":
        parent = psutil.Process(pid)
        return cls((parent, *parent.children(recursive=True)))

    def alive(self) -> list[str]:
        """Command lines of the members that still run (a zombie does not)."""
        found = []
        for member in self.members:
            try:
                if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(member.cmdline()))
            except psutil.NoSuchProcess:
                continue
        return found
