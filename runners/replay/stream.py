"""Reading a streamed completion: server-sent events, the chunks that carry tokens, and errors in all their forms."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
_OOM_WORDS = (
    "out_of_memory",
    "out of memory",
    "outofmemory",
    "can't allocate memory",
    "cannot allocate memory",
)
_OOM_STATUS = 507


class StreamError(ValueError):
    """What the server sent is no stream of completions."""


class EventParser:
    """Splits bytes as they come into the data of server-sent events (WHATWG HTML, section 9.2.6)."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, received: bytes) -> list[str]:
        """The data of every event that `received` completes."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        events = []
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].decode("utf-8", "replace").removeprefix(" "))
            elif not line and self._data:
                events.append("\n".join(self._data))
                self._data = []
        return events


@dataclass(frozen=True)
class Chunk:
    """carries_token: it brought part of the completion. usage_tokens: completion tokens so far, where told."""

    carries_token: bool = False
    finished: bool = False
    usage_tokens: int | None = None
    error: str | None = None
    text: str = ""


def parse_chunk(data: str) -> Chunk:
    """Raises StreamError where the data of an event is not a completion chunk."""
    try:
        body = json.loads(data)
    except ValueError:
        raise StreamError(f"an event is no JSON: {data[:80]!r}") from None
    if not isinstance(body, dict):
        raise StreamError(f"an event is no object: {data[:80]!r}")
    error = error_of(body)
    if error is not None:
        return Chunk(error=error)
    usage = body.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    tokens = tokens if isinstance(tokens, int) else None
    choices = body.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise StreamError(f"an event has no choices: {data[:80]!r}")
    if not choices:
        return Chunk(usage_tokens=tokens)
    choice = choices[0]
    delta = choice.get("delta") or {}
    text = choice.get("text") or delta.get("content") or delta.get("reasoning_content") or ""
    finished = choice.get("finish_reason") is not None
    # A token may be part of a character and show no text; a chunk that only names the role, or only ends the
    # stream, brings no token.
    carries = bool(text) or (not finished and "role" not in delta)
    return Chunk(carries_token=carries, finished=finished, usage_tokens=tokens, text=str(text))


def error_of(body: Any) -> str | None:
    """The error that a body tells (OpenAI's object, or the flat one of older servers), as "type: message"."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if error is None and body.get("object") == "error":
        error = body
    if error is None:
        return None
    if not isinstance(error, dict):
        return str(error)
    return f"{error.get('type') or error.get('code') or 'error'}: {error.get('message', '')}"


def is_out_of_memory(message: str, *, http_status: int = 500) -> bool:
    """Whether a failure that the server tells is one of memory. A refusal (4xx) never is."""
    if http_status == _OOM_STATUS:
        return True
    return http_status >= 500 and any(word in message.lower() for word in _OOM_WORDS)
