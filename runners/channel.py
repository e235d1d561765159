"""How results leave the measuring child: signed frames on a pipe whose key only the harness holds.

A frame is a 4-byte big-endian length, a 32-byte HMAC-SHA256 and that many bytes of JSON. The candidate's
code runs in the same process, so a file descriptor alone proves nothing: what it writes there without the
key does not verify, and the case counts as an error instead of as a result.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from .result import Measurement, MetricSpec, RunResult, Status

_LENGTH = struct.Struct(">I")
_MAC_BYTES = 32
MAX_FRAME_BYTES = 256 * 1024 * 1024
_FORGED = "the result channel holds bytes that the harness did not write"


class ChannelError(RuntimeError):
    """Bytes on the result channel that the harness did not write."""


class Sender:
    """The child's end. Everything it needs is bound before candidate code is imported."""

    __slots__ = ("_fd", "_key", "_write")

    def __init__(self, fd: int, key: bytes) -> None:
        self._fd = fd
        self._key = key
        self._write = os.write

    def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises ValueError where it holds a non-finite number."""
        body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
        frame = memoryview(_LENGTH.pack(len(body)) + _mac(self._key, body) + body)
        while frame:
            frame = frame[self._write(self._fd, frame) :]


class Receiver:
    """The parent's end: feed it bytes as they arrive."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Messages completed by `data`. Raises ChannelError on a frame that does not verify."""
        self._buffer += data
        head = _LENGTH.size + _MAC_BYTES
        while len(self._buffer) >= head:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MAX_FRAME_BYTES:
                raise ChannelError(_FORGED)
            if len(self._buffer) < head + size:
                return
            mac = bytes(self._buffer[_LENGTH.size : head])
            body = bytes(self._buffer[head : head + size])
            del self._buffer[: head + size]
            if not hmac.compare_digest(mac, _mac(self._key, body)):
                raise ChannelError(_FORGED)
            yield json.loads(body)


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).digest()


def run_to_wire(run: RunResult) -> dict[str, Any]:
    """RunResult as JSON-ready values."""
    return asdict(run)


def run_from_wire(raw: dict[str, Any]) -> RunResult:
    """Inverse of `run_to_wire`. Raises ChannelError on anything that is not a RunResult."""
    try:
        measurements = [
            Measurement(**{**item, "metric": MetricSpec(**item["metric"])}) for item in raw["measurements"]
        ]
        return RunResult(**{**raw, "status": Status(raw["status"]), "measurements": measurements})
    except (TypeError, KeyError, ValueError) as error:
        raise ChannelError(f"malformed result: {error}") from None
