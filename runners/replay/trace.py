"""A trace: when requests arrive, how long they are, what they share. Read from files, never changed in place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


class TraceError(ValueError):
    """A trace that cannot be read or used; the message names the file and line, or the request."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `at_s`: arrival after the trace's start. `klass`: the request class, "" where none is given.

    blocks: ids of the prompt's blocks of `Trace.block_tokens` tokens; two prompts that begin with the same ids
    begin with the same tokens.
    """

    at_s: float
    input_tokens: int
    output_tokens: int
    klass: str = ""
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    format: which reader read it. source_sha256: of the file's bytes.
    block_tokens: tokens of one block, None where the format knows nothing of shared prefixes.
    """

    requests: tuple[TraceRequest, ...]
    format: str
    source_sha256: str
    block_tokens: int | None = None

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return self.requests[-1].at_s - self.requests[0].at_s if self.requests else 0.0

    def content_hash(self) -> str:
        """Of what is sent and when (to the microsecond), whatever file and transforms it came from."""
        digest = hashlib.sha256(json.dumps({"block_tokens": self.block_tokens}).encode())
        for r in self.requests:
            row = [round(r.at_s * 1e6), r.input_tokens, r.output_tokens, r.klass, list(r.blocks)]
            digest.update(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        return digest.hexdigest()
