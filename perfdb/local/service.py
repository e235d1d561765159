"""What the supervisor needs to know of one child process."""

import signal
from dataclasses import dataclass, field

from perfdb.local.account import Account


@dataclass(frozen=True)
class StopStep:
    """Send `signal`, then allow `wait_s` before the next step."""

    signal: signal.Signals
    wait_s: float


@dataclass(frozen=True)
class Service:
    """One child: how to start it, and how to stop it.

    `death_signal` comes from the kernel when the supervisor dies without stopping anything. After the last of
    `stop_steps` the whole process group is killed. `socket_fd` is handed on as descriptor 3.
    """

    name: str
    command: tuple[str, ...]
    stop_steps: tuple[StopStep, ...]
    death_signal: signal.Signals
    environment: dict[str, str] = field(default_factory=dict)
    account: Account | None = None
    cpus: frozenset[int] = frozenset()
    socket_fd: int | None = None
