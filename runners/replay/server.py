"""The server under test: started for one replay in a process group of its own, watched, always ended."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import aiohttp

from ..context import Context
from ..process import start, stop
from .options import COMMAND_PLACEHOLDERS, ServerOptions, fill

ENGINE = Path(__file__).resolve().parent.parent / "engine"
LOG_TAIL_BYTES = 8000
# Read by the built-in engine, which limits its share of the device by it.
MEMORY_LIMIT_VARIABLE = "PERFDB_MEMORY_LIMIT_BYTES"
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 2.0
_GRACE_S = 2.0
_MEMORY_WORDS = re.compile(
    rb"MemoryError|bad_alloc|OutOfMemoryError|[Oo]ut of memory|[Cc]an(?:'t|not) allocate memory"
)


class ServerError(RuntimeError):
    """The server never became ready. log: its last lines. out_of_memory: it died of memory."""

    def __init__(self, message: str, *, log: str, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.log = log
        self.out_of_memory = out_of_memory


class Server:
    """A server at `base_url`. process is None where it was running before us: then we neither watch nor end it."""

    def __init__(
        self, origin: str, options: ServerOptions, process: subprocess.Popen[bytes] | None, log: IO[bytes]
    ) -> None:
        self.origin = origin
        self.base_url = origin + options.base_path.rstrip("/")
        self.process = process
        self._log = log

    def alive(self) -> bool:
        return self.process is None or self.process.poll() is None

    def log_tail(self) -> str:
        """The last lines of what it printed."""
        return self._tail().decode("utf-8", "replace").strip()

    def death(self) -> str | None:
        """How it died by itself, in words; None while it lives."""
        if self.process is None or self.process.poll() is None:
            return None
        code = self.process.returncode
        if code >= 0:
            return f"exited with code {code}"
        return f"was killed by {signal.Signals(-code).name}"

    def died_of_memory(self) -> bool:
        """It died by SIGKILL, which the kernel sends when memory runs out (nobody else had reason to), or its
        last words are about memory."""
        if self.process is None or self.process.poll() in (None, 0):
            return False
        return self.process.returncode == -signal.SIGKILL or _MEMORY_WORDS.search(self._tail()) is not None

    def _tail(self) -> bytes:
        # pread: the server writes through the same open file, whose offset must stay where it is.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))


@asynccontextmanager
async def running(
    options: ServerOptions, context: Context, *, memory_limit_bytes: int | None, http: aiohttp.ClientSession
) -> AsyncIterator[Server]:
    """The server, ready for requests. On the way out its whole process group is ended, whatever happened.

    Raises ServerError when it is not ready in time, and OptionsError for an unknown placeholder.
    """
    with tempfile.TemporaryFile() as log:
        if options.url is not None:
            server = Server(options.url.rstrip("/"), options, None, log)
            await _ready(server, options, context, http)
            yield server
            return
        port = _free_port()
        process = start(
            _command(options, context, port),
            root=context.root,
            environment=_environment(context, memory_limit_bytes),
            cpus=context.cpus,
            # An rlimit would count what CUDA maps on the host; there the device's memory is what is limited.
            memory_limit_bytes=memory_limit_bytes if context.device == "cpu" else None,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            server = Server(f"http://127.0.0.1:{port}", options, process, log)
            await _ready(server, options, context, http)
            yield server
        finally:
            stop(process, grace_s=_GRACE_S if process.poll() is None else 0.0)


def _command(options: ServerOptions, context: Context, port: int) -> list[str]:
    values = (context.python, str(port), str(ENGINE), context.device, str(context.root))
    names = dict(zip(COMMAND_PLACEHOLDERS, values, strict=True))
    return [str(word) for word in fill(options.command, names, "server.command")]


def _environment(context: Context, memory_limit_bytes: int | None) -> dict[str, str]:
    added = {} if memory_limit_bytes is None else {MEMORY_LIMIT_VARIABLE: str(memory_limit_bytes)}
    return {**context.environment, **added}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _ready(
    server: Server, options: ServerOptions, context: Context, http: aiohttp.ClientSession
) -> None:
    """Wait for status 200. Raises ServerError."""
    loop = asyncio.get_running_loop()
    allowed_s = min(options.startup_timeout_s, context.remaining_s())
    end = loop.time() + allowed_s
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
    last = "no answer"
    while loop.time() < end:
        if not server.alive():
            raise ServerError(
                f"the server {server.death()} before it was ready",
                log=server.log_tail(),
                out_of_memory=server.died_of_memory(),
            )
        try:
            async with http.get(server.origin + options.ready, timeout=timeout) as response:
                if response.status == 200:
                    return
                last = f"status {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            last = type(error).__name__
        await asyncio.sleep(_POLL_S)
    raise ServerError(
        f"the server was not ready within {allowed_s:g} s: {options.ready} gave {last}", log=server.log_tail()
    )
